"""What a block runs for each fold of a trial: a training by `mpi_learn`, or a function of the user."""
