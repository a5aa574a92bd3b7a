"""Trials that are asked for and reported outside of a search: from Python, or by a workload system."""
