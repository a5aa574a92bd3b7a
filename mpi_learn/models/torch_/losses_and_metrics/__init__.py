"""Losses and metrics of PyTorch models."""
