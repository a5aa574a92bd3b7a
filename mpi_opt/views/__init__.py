"""Shows results: converts rows of the store to text, figures or a page."""
