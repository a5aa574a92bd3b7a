"""Sampling, encoding, bookkeeping and checks of points of the search space, shared by the strategies."""
