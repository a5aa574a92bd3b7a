"""``python -m mpi_learn``."""

from mpi_learn.cli.commands import main

if __name__ == "__main__":
    main()
