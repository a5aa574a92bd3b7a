"""Optimizers on flat float32 vectors, each fused into one pass over memory."""
