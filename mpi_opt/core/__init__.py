"""Values and rules of a search. No MPI, SQL, files or clock."""
