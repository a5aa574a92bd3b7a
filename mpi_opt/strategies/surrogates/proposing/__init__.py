"""Proposes points with a surrogate model: acquisition functions, and their maximisation."""
