"""Rank 0: asks the strategy, assigns trials to blocks and records their outcomes."""
