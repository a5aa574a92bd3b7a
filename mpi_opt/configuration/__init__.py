"""Reads and validates ``space.yaml``."""
