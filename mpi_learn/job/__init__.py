"""How the processes of a job start, are asked to end, and end: launchers, Slurm, signals and exit statuses. No MPI."""
