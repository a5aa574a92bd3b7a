"""The folds of a cross-validation: which samples each one has, and when a trial is stopped between them."""
