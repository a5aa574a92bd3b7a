"""Vectors on a GPU, and how several ranks add them. PyTorch is imported only where a training uses it."""
