"""Simulators of known data: jets and showers."""
