"""Generative adversarial networks: two models that train each other."""
