"""Rules that stop trials because of their intermediate values, with any strategy."""
