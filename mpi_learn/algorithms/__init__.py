"""The training algorithms: how ranks combine their gradients or weights. Each method is one file.

An algorithm sees flat vectors, the roles of the ranks and a communicator, but no model and no file.
"""
