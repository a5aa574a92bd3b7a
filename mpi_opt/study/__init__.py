"""A study as users and other programs use it."""
