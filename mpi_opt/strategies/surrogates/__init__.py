"""Surrogate models and acquisition functions, shared by the model-based strategies."""
