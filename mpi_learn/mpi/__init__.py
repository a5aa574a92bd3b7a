"""Communication. The only room that imports mpi4py."""
