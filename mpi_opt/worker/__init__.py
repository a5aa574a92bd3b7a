"""Every rank except rank 0: joins blocks and runs trials."""
