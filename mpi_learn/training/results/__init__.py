"""The result of a training, and the folder in which it is saved."""
