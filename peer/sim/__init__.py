"""The simulated world: thousands of stacks in one virtual time, with latencies and faults."""
