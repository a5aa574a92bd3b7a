"""Everything that shows results: rows in, text, figures or a page out."""
