"""What a training spends its time on, and choices that are made by timing a few of its steps."""
