"""Inputs of the networks, from the particles (n, particles, 4) that `mpi-learn prepare jets --simulate N` writes.

Their columns are transverse momentum in GeV, Δη and Δφ from the jet's axis, and charge; they are ordered by momentum.
"""

import numpy as np

ANGLE_SCALE = 0.25
"""Angles in a jet are divided by this typical distance, so that they are of order one."""

N_PIXELS, HALF_WIDTH = 24, 0.6
"""Of a jet image: pixels along each axis, and the largest |Δη| and |Δφ| on it."""


def particles(x: np.ndarray) -> np.ndarray:
    """Six numbers of order one for each particle, all 0 for padding; shape (n, particles, 6) float32.

    The columns are ln(1 + p / GeV) / 4, which is positive for a particle, the share of the jet's momentum, Δη, Δφ, the
    distance from the axis, and charge.
    """
    pt, eta, phi, charge = np.moveaxis(x, -1, 0)
    eta, phi = eta / ANGLE_SCALE, phi / ANGLE_SCALE
    columns = [np.log1p(pt) / 4, _shares(pt), eta, phi, np.hypot(eta, phi), charge]
    return np.stack(columns, -1).astype(np.float32)


def images(x: np.ndarray) -> np.ndarray:
    """Jet images, shape (n, 24, 24, 2) float32: √ of the share of momentum in each pixel, of all and charged particles.

    Each jet is turned such that its widest axis lies along the second image axis, and mirrored such that most momentum
    is in the half with larger indices (de Oliveira et al., arXiv:1511.05190, do the same with the hardest subjets).
    """
    pt, eta, phi, charge = np.moveaxis(x.astype(np.float64), -1, 0)
    place = _turned(pt, eta + 1j * phi)
    rows, columns = (np.floor((axis / HALF_WIDTH + 1) * N_PIXELS / 2).astype(int) for axis in (place.imag, place.real))
    seen = (pt > 0) & (np.minimum(rows, columns) >= 0) & (np.maximum(rows, columns) < N_PIXELS)
    index = (np.nonzero(seen)[0] * N_PIXELS + rows[seen]) * N_PIXELS + columns[seen]
    weights = (_shares(pt), _shares(pt) * (charge != 0))
    sums = [np.bincount(index, weight[seen], len(x) * N_PIXELS**2) for weight in weights]
    return np.sqrt(np.stack(sums, -1)).reshape(len(x), N_PIXELS, N_PIXELS, 2).astype(np.float32)


def _shares(pt: np.ndarray) -> np.ndarray:
    return pt / np.maximum(pt.sum(1, keepdims=True), 1e-9)


def _turned(weight: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Points in the complex plane with their widest axis along the real one, and most weight at positive parts."""
    angle = np.angle(np.sum(weight * place**2, 1, keepdims=True)) / 2
    turned = place * np.exp(-1j * angle)
    right, upper = (np.sum(weight * np.sign(axis), 1, keepdims=True) >= 0 for axis in (turned.real, turned.imag))
    return np.where(right, 1, -1) * turned.real + 1j * np.where(upper, 1, -1) * turned.imag
