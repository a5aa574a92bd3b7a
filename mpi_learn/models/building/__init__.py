"""Builds or loads the model that a configuration names."""
