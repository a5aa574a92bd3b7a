"""Samples: their files, their distribution over workers, and their order."""
