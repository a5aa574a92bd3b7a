"""The user's code and data of a study: what the trials have run, and what has changed since."""
