"""Reads and validates YAML files and the Python functions that they name."""
