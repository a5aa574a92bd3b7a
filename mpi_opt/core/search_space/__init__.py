"""The search space: dimensions and conditions, its changes, and hints and beliefs of users about it."""
