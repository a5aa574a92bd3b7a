"""Keras models."""
