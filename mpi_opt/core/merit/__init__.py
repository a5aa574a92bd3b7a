"""Figures of merit: values, directions, aggregation over folds, and Pareto fronts."""
