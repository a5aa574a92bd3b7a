"""``python -m mpi_opt``."""

from mpi_opt.cli.main import main

main()
