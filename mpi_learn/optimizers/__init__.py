"""Optimizers that change a flat float32 vector in place, fused in one pass over memory."""
