"""PyTorch models."""
