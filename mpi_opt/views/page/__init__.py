"""Results as an HTML page."""
