"""Many simulated runs: the plan of a sweep, its execution, finished runs on disk, and intervals over seeds."""
