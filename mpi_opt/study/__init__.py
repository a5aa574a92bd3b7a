"""A study as users and other programs see it."""
