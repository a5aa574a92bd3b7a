"""The principal axes of a function near its minimum, along which the length scales of a model can be."""

from __future__ import annotations

import numpy as np

from mpi_opt.core.arrays import Bools, Floats

MORE_VALUES = 1.2
"""Fewest values per coefficient of the quadratic function; with fewer, their noise decides on the axes."""
RIDGE = 1e-6
"""Weight of the sum of squares of the coefficients, in units of the number of values."""


def principal_axes(x: Floats, y: Floats, is_category: Bools) -> tuple[Floats | None, int]:
    """The eigenvectors of the Hessian of a quadratic function that is fitted to all values.

    Hyperparameters often matter in combinations, such as learning rate and batch size. A valley is then oblique, and
    length scales along the hyperparameters cannot describe it.

    Args:
        x: Shape (n, n_dimensions), rows of an `Encoding`.
        y: Shape (n,), finite.
        is_category: Shape (n_dimensions,), bool: these dimensions keep their axes.

    Returns:
        Shape (n_dimensions, n_dimensions): the axes are its columns; None if fewer than two numbers vary, or if there
        are too few values. And the number of angles between the axes and the hyperparameters.
    """
    centre = x[np.argmin(y)]
    size = np.abs(x - centre).max(axis=0)
    varied = np.flatnonzero(~is_category & (size > 0.0))
    first, second = np.triu_indices(len(varied))
    n_coefficients = 1 + len(varied) + len(first)
    if len(varied) < 2 or len(y) < MORE_VALUES * n_coefficients:
        return None, 0
    z = (x[:, varied] - centre[varied]) / size[varied]
    terms = np.hstack([np.ones((len(y), 1)), z, z[:, first] * z[:, second]])
    scale = y.std() or 1.0
    matrix = terms.T @ terms + RIDGE * len(y) * np.eye(n_coefficients)
    curvature = np.linalg.solve(matrix, terms.T @ ((y - y.mean()) / scale))[1 + len(varied) :]
    half = np.zeros((len(varied), len(varied)))
    half[first, second] = curvature
    axes = np.eye(len(is_category))
    axes[np.ix_(varied, varied)] = np.linalg.eigh((half + half.T) / np.outer(size[varied], size[varied]))[1]
    return axes, len(first) - len(varied)
