"""``python -m mpi_opt``."""

from mpi_opt.cli import main

main()
