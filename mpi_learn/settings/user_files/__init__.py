"""The Python files of a user: which ones a function needs, and that they do not change while a search runs."""
