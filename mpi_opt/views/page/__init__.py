"""Results as HTML pages: the report and the dashboard."""
