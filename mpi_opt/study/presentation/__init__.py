"""A study as text, as rows of a table, and as a data frame."""
