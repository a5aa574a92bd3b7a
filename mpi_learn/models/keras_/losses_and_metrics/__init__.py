"""Losses and metrics of Keras models."""
