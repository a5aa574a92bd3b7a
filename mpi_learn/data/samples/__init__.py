"""Samples in memory or read from files, and the batches drawn from them."""
