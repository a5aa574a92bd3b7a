"""How the ranks work together: a method is a file.

Sees flat vectors, a layout and a communicator; never a model, a file or an epoch.
"""
