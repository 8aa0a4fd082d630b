"""One simulated run: the scenario, what its nodes do, what goes wrong, and what is counted."""
