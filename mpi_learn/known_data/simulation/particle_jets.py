"""Jets as sequences of particles: hard partons, parton shower, fragmentation, and a simple detector.

Simplified on purpose: no underlying event, pile-up, colour reconnection, hadron decays, B hadrons or magnetic field,
and the detector is a threshold and a resolution. The classes differ where they differ in nature: in colour factor (C_F
or C_A), mass, number of prongs and charge.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpi_learn.errors import ConfigurationError
from mpi_learn.known_data.simulation.energy_range import check_energy
from mpi_learn.known_data.simulation.fragmentation import fragment
from mpi_learn.known_data.simulation.heavy_decays import RADIUS, hard_jets
from mpi_learn.known_data.simulation.parton_shower import shower
from mpi_learn.known_data.simulation.partons import Integers, Partons, Points, Reals, summed

Jets = dict[str, np.ndarray]
JETS_PER_BLOCK = 5000
SMALLEST_GEV, LARGEST_GEV = 100.0, 10_000.0
"""Limits of the transverse momentum. The simulation is collinear: masses must be small compared with it."""

THRESHOLD_GEV = 0.5
"""Particles with less transverse momentum are not detected."""

CHARGE_EXPONENT = 0.5
JET_FEATURES = ("pt", "mass", "multiplicity", "girth", "ptd", "charge")


def simulate_jets(
    n: int, seed: int, *, classes: int = 2, particles: int = 64, energy: tuple[float, float] = (500.0, 1000.0)
) -> Iterator[Jets]:
    """Blocks of simulated jets, in random order of the classes.

    Args:
        n: Number of jets in all blocks.
        seed: The same seed and options give the same jets.
        classes: 2 for gluon and quark; 5 for gluon, quark, W, Z and top.
        particles: Number of particles kept per jet, those with the largest transverse momentum.
        energy: Range of the transverse momentum of the jets in GeV; the distribution is uniform.

    Returns:
        An iterator over blocks of m jets: ``X`` (m, particles, 4) float32, ``mask`` (m, particles) uint8, ``jet``
        (m, 6) float32, all as `measured_jets` returns them, and ``y`` (m,) uint8.

    Raises:
        ConfigurationError: An option is outside of its range.
    """
    if classes not in (2, 5):
        raise ConfigurationError(f"expected 2 or 5, found {classes}", where="--classes", cure="write 2 or 5")
    if particles < 1:
        raise ConfigurationError(f"expected at least 1, found {particles}", where="--particles", cure="write 64")
    check_energy(energy, SMALLEST_GEV, LARGEST_GEV)
    return _blocks(n, seed, classes, particles, energy)


def _blocks(n: int, seed: int, classes: int, particles: int, energy: tuple[float, float]) -> Iterator[Jets]:
    starts = range(0, n, JETS_PER_BLOCK)
    for start, child in zip(starts, np.random.SeedSequence(seed).spawn(len(starts)), strict=True):
        rng = np.random.default_rng(child)
        size = min(JETS_PER_BLOCK, n - start)
        y = rng.integers(classes, size=size)
        pt = rng.uniform(*energy, size)
        yield measured_jets(produced_hadrons(y, pt, rng), size, particles, rng) | {"y": y.astype(np.uint8)}


def produced_hadrons(classes: Integers, pt: Reals, rng: np.random.Generator) -> Partons:
    """The hadrons of one jet for each of `classes` and transverse momenta in GeV; `origin` is the index of the jet."""
    hard = hard_jets(classes, pt, rng)
    return hard.assembled(fragment(shower(hard.partons, rng), rng))


def measured_jets(hadrons: Partons, n: int, particles: int, rng: np.random.Generator) -> Jets:
    """The measurement of `n` jets by a detector.

    Returns:
        ``X`` (n, particles, 4): transverse momentum in GeV, Δη and Δφ from the jet's axis, and charge in units of e,
        ordered by transverse momentum and filled with zeros. ``mask`` (n, particles): 1 for a particle, 0 for filling.
        ``jet`` (n, 6): `JET_FEATURES` of all detected particles, also of those that are not kept.
    """
    jet, pt, position, charge = _measured(hadrons, rng)
    axis = _added(jet, pt * position, n) / np.maximum(summed(jet, pt, n), 1e-9)
    position = position - axis[jet]
    order = np.lexsort((-pt, jet))
    jet, pt, position, charge = jet[order], pt[order], position[order], charge[order]
    rank = np.arange(len(jet)) - np.searchsorted(jet, jet)
    kept = rank < particles
    at = (jet[kept], rank[kept])
    x = np.zeros((n, particles, 4), np.float32)
    x[at] = np.stack([pt, position.real, position.imag, charge], 1)[kept]
    mask = np.zeros((n, particles), np.uint8)
    mask[at] = 1
    return {"X": x, "mask": mask, "jet": _features(jet, pt, position, charge, n)}


def _measured(hadrons: Partons, rng: np.random.Generator) -> tuple[Integers, Reals, Points, Reals]:
    """Jet, smeared transverse momentum, position and charge of the hadrons in the cone and above the threshold.

    The relative resolution of the transverse momentum is 1 % for charged particles (a tracker), and 50 % / √(p / GeV) ⊕
    5 % for neutral ones (a calorimeter). The resolution of both η and φ is 0.001 for charged and 0.04 for neutral ones.
    """
    n, is_charged = len(hadrons), hadrons.charge != 0
    resolution = np.where(is_charged, 0.01, np.hypot(0.50 / np.sqrt(hadrons.pt), 0.05))
    pt = hadrons.pt * np.maximum(1 + resolution * rng.normal(size=n), 0)
    shift = np.where(is_charged, 0.001, 0.04) * (rng.normal(size=n) + 1j * rng.normal(size=n))
    position = hadrons.position + shift
    seen = (pt > THRESHOLD_GEV) & (np.abs(position) < RADIUS)
    return hadrons.origin[seen], pt[seen], position[seen], hadrons.charge[seen] / 3


def _features(jet: Integers, pt: Reals, position: Points, charge: Reals, n: int) -> np.ndarray:
    """`JET_FEATURES`, shape (n, 6)."""
    across = _added(jet, pt * np.exp(1j * position.imag), n)  # p_x + i p_y
    along, energy = (summed(jet, pt * f(position.real), n) for f in (np.sinh, np.cosh))
    mass = np.sqrt(np.maximum(energy**2 - along**2 - np.abs(across) ** 2, 0))
    total = np.maximum(summed(jet, pt, n), 1e-9)
    girth = summed(jet, pt * np.abs(position), n) / total
    ptd = np.sqrt(summed(jet, pt**2, n)) / total
    jet_charge = summed(jet, charge * pt**CHARGE_EXPONENT, n) / total**CHARGE_EXPONENT
    columns = [np.abs(across), mass, np.bincount(jet, minlength=n), girth, ptd, jet_charge]
    return np.stack(columns, 1).astype(np.float32)


def _added(jet: Integers, values: Points, n: int) -> Points:
    """`summed` for complex values."""
    return summed(jet, values.real, n) + 1j * summed(jet, values.imag, n)
