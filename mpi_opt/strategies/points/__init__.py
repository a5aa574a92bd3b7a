"""Sampling, encoding and bookkeeping of points of the search space, shared by the strategies."""
