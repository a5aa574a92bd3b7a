"""MPI Opt: decides what to train next, and on which block of MPI ranks."""

__version__ = "0.1.0"
