"""Distances between generated and real showers: profiles in depth and across, and the energy response.

Arrays of showers have the shape (n, 25, 25, 25, 1); the first image axis is the depth.
"""

import numpy as np
from scipy.stats import wasserstein_distance


def roots(x: np.ndarray) -> np.ndarray:
    """√ of energies in GeV, which reduces the range of the voxels and makes their sampling fluctuations equal."""
    return np.sqrt(x)


def profile_distance(result) -> float:
    """The sum of the distances in depth and across, on the validation data of a training."""
    real, generated, _ = showers(result)
    return longitudinal_distance(real, generated) + lateral_distance(real, generated)


def response_distance(result) -> float:
    """The distance of the energy responses, on the validation data of a training."""
    return energy_response_distance(*showers(result))


def showers(result) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Real showers in GeV, generated ones of the same energies, and these energies (n,) in GeV."""
    real, energy = result.validation
    energy = np.asarray(energy, np.float32).reshape(-1, 1)
    return real.astype(np.float64) ** 2, generate(result.model["generator"], energy), energy[:, 0]


def generate(generator, energy: np.ndarray, seed: int = 0) -> np.ndarray:
    """Generated showers in GeV, one for each energy (n, 1), always from the same noise."""
    latent = generator.inputs[0].shape[1]
    noise = np.random.default_rng(seed).normal(size=(len(energy), latent)).astype(np.float32)
    return generator.predict([noise, energy], batch_size=128, verbose=0).astype(np.float64) ** 2


def longitudinal_distance(real: np.ndarray, generated: np.ndarray) -> float:
    """Half of the summed differences between the mean profiles in depth: 0 for equal, 1 for separate profiles."""
    return _total_variation(real, generated, (2, 3, 4))


def lateral_distance(real: np.ndarray, generated: np.ndarray) -> float:
    """The same across, as the mean over the two transverse axes."""
    return (_total_variation(real, generated, (1, 3, 4)) + _total_variation(real, generated, (1, 2, 4))) / 2


def energy_response_distance(real: np.ndarray, generated: np.ndarray, energy: np.ndarray) -> float:
    """The Wasserstein distance between the distributions of deposited energy / energy of the particle."""
    responses = (one.sum((1, 2, 3, 4)) / energy for one in (real, generated))
    return float(wasserstein_distance(*responses))


def mean_profile(showers: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The mean share of a shower's energy in each slice: summed over `axes`, shape (25,)."""
    sums = showers.sum(axes)
    return (sums / np.maximum(sums.sum(1, keepdims=True), 1e-12)).mean(0)


def _total_variation(real: np.ndarray, generated: np.ndarray, axes: tuple[int, ...]) -> float:
    return float(np.abs(mean_profile(real, axes) - mean_profile(generated, axes)).sum() / 2)
