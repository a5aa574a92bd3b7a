"""MPI Learn: trains one model on all ranks of one MPI communicator."""
