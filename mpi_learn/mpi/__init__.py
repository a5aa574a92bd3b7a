"""Communication. Only `library` imports mpi4py."""
