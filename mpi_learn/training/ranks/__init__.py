"""What the ranks of one training have in common, and how they share its steps."""
