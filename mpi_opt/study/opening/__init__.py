"""Opens a study for a search or for a workload system: its lease, its past trials, and what must not change."""
