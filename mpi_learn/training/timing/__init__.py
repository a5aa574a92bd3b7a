"""The times of the parts of a training, and choices that are made by timing a few of its steps."""
