"""Algorithms with a parameter server: Downpour, EASGD and GEM."""
