"""Finds, copies and reads data files."""
