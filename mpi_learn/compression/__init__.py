"""Vectors in fewer bytes: encodings, and the errors of one message that are corrected by the next ones."""
