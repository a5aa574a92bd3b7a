"""Electromagnetic showers in a block of tungsten, cut into 25 x 25 x 25 voxels.

The parametrisation is that of Grindhammer & Peters (arXiv:hep-ex/0001020) for homogeneous media. In depth t, in
radiation lengths, a shower of energy E deposits (Longo & Sestili, Nucl. Instrum. Meth. 128 (1975) 283)

    dE/dt = E β (β t)^(α - 1) exp(-β t) / Γ(α),    T = (α - 1) / β,    y = E / E_c

where T is the depth of the maximum. ln T and ln α fluctuate from shower to shower as a correlated Gaussian with

    ⟨ln T⟩ = ln(ln y - 0.812)                       σ(ln T) = 1 / (-1.4 + 1.26 ln y)
    ⟨ln α⟩ = ln(0.81 + (0.458 + 2.26 / Z) ln y)     σ(ln α) = 1 / (-0.58 + 0.86 ln y)
    ρ = 0.705 - 0.023 ln y

At the relative depth τ = t / T the energy is distributed over the distance r from the axis, in Molière radii, as

    f(r) = p 2 r R_C² / (r² + R_C²)² + (1 - p) 2 r R_T² / (r² + R_T²)²        (core and tail)

    R_C = 0.0251 + 0.00319 ln E + (0.1162 - 0.000381 Z) τ
    R_T = (0.659 - 0.00309 Z) (exp(-2.59 (τ - 0.645)) + exp((0.3585 + 0.0421 ln E) (τ - 0.645)))
    p = (2.632 - 0.00094 Z) exp(u - exp(u)),    u = (0.401 + 0.00187 Z - τ) / (1.313 - 0.0686 ln E)

with E in GeV. A shower is a number of energy spots, Poisson distributed with mean E / ε, of exponentially distributed
energies with mean ε. The variance of the deposited energy is then 2 ε E, and ε = a² / 2 gives the sampling resolution
σ/E = a / √(E / GeV). Not simulated: noise, cracks, magnetic field, and the start of photon showers by conversion.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from mpi_learn.known_data.data_set import check_energy

Z = 74
CRITICAL_ENERGY_GEV = 0.008
"""Atomic number and critical energy of tungsten (X₀ = 3.5 mm, Molière radius 9.3 mm)."""

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
"""Single precision halves memory and time: a shower has thousands of spots."""

N_VOXELS = 25
DEPTH_X0, WIDTH_RM = 1.0, 0.25
"""The size of a voxel: in depth in radiation lengths, across in Molière radii."""

SAMPLING = 0.15
"""The sampling resolution a: σ/E at 1 GeV."""
SMALLEST_GEV, LARGEST_GEV = 1.0, 1000.0
SHOWERS_PER_BLOCK = 50


def simulate_showers(
    n: int, seed: int, *, energy: tuple[float, float] = (10.0, 100.0)
) -> Iterator[dict[str, np.ndarray]]:
    """Blocks of simulated electron showers.

    The particles enter the front face at a right angle, at a random position in its central voxel.

    Args:
        n: Number of showers in all blocks.
        seed: The same seed and options give the same showers.
        energy: Range of the energy of the particles in GeV; the distribution is uniform.

    Returns:
        An iterator over blocks of m showers: ``X`` (m, 25, 25, 25, 1) float32, deposited energies in GeV, first axis
        depth; and ``energy`` (m, 1) float32, the energy of the particle in GeV.

    Raises:
        ConfigurationError: `energy` is outside of 1 to 1000 GeV.
    """
    check_energy(energy, SMALLEST_GEV, LARGEST_GEV)
    return _blocks(n, seed, energy)


def _blocks(n: int, seed: int, energy: tuple[float, float]) -> Iterator[dict[str, np.ndarray]]:
    starts = range(0, n, SHOWERS_PER_BLOCK)
    for start, child in zip(starts, np.random.SeedSequence(seed).spawn(len(starts)), strict=True):
        rng = np.random.default_rng(child)
        energies = rng.uniform(*energy, min(SHOWERS_PER_BLOCK, n - start))
        voxels = deposited(energies, rng).astype(np.float32)[..., np.newaxis]
        yield {"X": voxels, "energy": energies.astype(np.float32)[:, np.newaxis]}


def deposited(energies: Reals, rng: np.random.Generator) -> Reals:
    """Energies in GeV in the voxels of one shower for each of `energies`; shape (n, 25, 25, 25)."""
    n = len(energies)
    depth_of_maximum, alpha = longitudinal_shapes(energies, rng)
    spot_energy = SAMPLING**2 / 2
    counts = rng.poisson(energies / spot_energy)
    shower = np.repeat(np.arange(n), counts)

    def of_spots(values: Reals) -> Singles:
        return np.repeat(values.astype(np.float32), counts)

    energy = np.float32(spot_energy) * rng.standard_exponential(len(shower), np.float32)
    depth = rng.standard_gamma(of_spots(alpha), dtype=np.float32)  # β t
    radius = radii(depth * of_spots(1 / (alpha - 1)), of_spots(np.log(energies)), rng)
    phi = np.float32(2 * np.pi) * rng.random(len(shower), np.float32)
    impact = WIDTH_RM * rng.uniform(-0.5, 0.5, (2, n))
    x = radius * np.cos(phi) + of_spots(impact[0])
    y = radius * np.sin(phi) + of_spots(impact[1])
    return _binned(shower, (depth * of_spots(depth_of_maximum / (alpha - 1) / DEPTH_X0), _cell(x), _cell(y)), energy, n)


def longitudinal_shapes(energies: Reals, rng: np.random.Generator) -> tuple[Reals, Reals]:
    """T in radiation lengths and α of one shower for each of `energies` in GeV; α is above 1."""
    log_y = np.log(energies / CRITICAL_ENERGY_GEV)
    correlation = 0.705 - 0.023 * log_y
    first, second = rng.normal(size=(2, len(energies)))
    log_t = np.log(log_y - 0.812) + first / (-1.4 + 1.26 * log_y)
    mixed = correlation * first + np.sqrt(1 - correlation**2) * second
    log_alpha = np.log(0.81 + (0.458 + 2.26 / Z) * log_y) + mixed / (-0.58 + 0.86 * log_y)
    return np.exp(log_t), np.maximum(np.exp(log_alpha), 1.1)


def core_and_tail(tau: Singles, log_e: Singles) -> tuple[Singles, Singles, Singles]:
    """R_C and R_T in Molière radii, and the share p of the core, at relative depths `tau` for ln E of `log_e`."""
    core = 0.0251 + 0.00319 * log_e + (0.1162 - 0.000381 * Z) * tau
    tail = (0.659 - 0.00309 * Z) * (np.exp(-2.59 * (tau - 0.645)) + np.exp((0.3585 + 0.0421 * log_e) * (tau - 0.645)))
    u = (0.401 + 0.00187 * Z - tau) / (1.313 - 0.0686 * log_e)
    return core, tail, np.clip((2.632 - 0.00094 * Z) * np.exp(u - np.exp(u)), 0, 1)


def radii(tau: Singles, log_e: Singles, rng: np.random.Generator) -> Singles:
    """Distances from the axis in Molière radii of one spot for each of `tau`: r = R √(v / (1 - v)), v in [0, 1)."""
    core, tail, share = core_and_tail(tau, log_e)
    scale = np.where(rng.random(len(tau), np.float32) < share, core, tail)
    flat = rng.random(len(tau), np.float32)
    return np.asarray(scale * np.sqrt(flat / (1 - flat)))


def _cell(position: Singles) -> Singles:
    """The place across in voxels; the axis is the middle of the central one."""
    return position / WIDTH_RM + N_VOXELS / 2


def _binned(shower: Integers, place: tuple[Singles, ...], energy: Singles, n: int) -> Reals:
    """The sum of the spots' energies in each voxel. Spots outside of the volume are not counted."""
    inside = np.all([(axis >= 0) & (axis < N_VOXELS) for axis in place], axis=0)
    index = shower[inside]
    for axis in place:
        index = index * N_VOXELS + axis[inside].astype(np.int64)
    summed = np.bincount(index, energy[inside], n * N_VOXELS**3)
    return np.asarray(summed, np.float64).reshape(n, N_VOXELS, N_VOXELS, N_VOXELS)
