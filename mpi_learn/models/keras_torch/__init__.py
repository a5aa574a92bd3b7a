"""Keras models on the PyTorch backend of Keras."""
