"""The commands of ``mpi-opt``, in groups."""
