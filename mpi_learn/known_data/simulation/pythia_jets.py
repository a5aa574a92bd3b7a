"""Jets of proton-proton collisions at 13 TeV: events of Pythia 8, and anti-kt jets of FastJet, whose core is in Pythia.

Pythia has its default settings (the Monash tune, arXiv:1404.5630), with initial- and final-state radiation,
hadronisation and the underlying event, without pile-up and without a detector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mpi_learn.errors import ConfigurationError, DataError
from mpi_learn.known_data.data_set import check_energy
from mpi_learn.settings.optional_packages import imported

JETS_PER_BLOCK = 500
SMALLEST_GEV, LARGEST_GEV = 100.0, 3000.0
NARROWEST = 1.1
"""The smallest ratio of the limits of the transverse momentum: few events have a jet in a narrower range."""

BEAMS_GEV, RADIUS, MOST_RAPIDITY = 13_000, 0.8, 2.5
ALL_RAPIDITIES = 25.0
"""Pythia's limit of particles in jets; with a lower one, jets at this limit would be cut."""

THRESHOLD_GEV = 0.5
"""Particles of a jet with less transverse momentum are left out, as in measurements with tracks."""

LARGEST_SEED = 900_000_000
"""Of Pythia."""

MOST_FAILURES = 100
N_BINS, MOST_WAITING = 20, 100
CHARGE_EXPONENT = 0.5
JET_FEATURES = ("pt", "mass", "multiplicity", "girth", "ptd", "charge")

Reals = npt.NDArray[np.float64]
Jets = dict[str, np.ndarray]


@dataclass(frozen=True)
class Process:
    """A hard process, and the particles (PDG codes) that its jets come from."""

    settings: tuple[str, ...]
    particles: frozenset[int]


HADRONIC_W = ("24:onMode = off", "24:onIfAny = 1 2 3 4 5")
PROCESSES = (
    Process(("HardQCD:gg2gg = on",), frozenset({21})),
    Process(("HardQCD:qq2qq = on",), frozenset({1, 2, 3})),
    Process(("WeakDoubleBoson:ffbar2WW = on", *HADRONIC_W), frozenset({24})),
    Process(
        ("WeakDoubleBoson:ffbar2gmZgmZ = on", "WeakZ0:gmZmode = 2", "23:onMode = off", "23:onIfAny = 1 2 3 4 5"),
        frozenset({23}),
    ),
    Process(("Top:gg2ttbar = on", "Top:qqbar2ttbar = on", *HADRONIC_W), frozenset({6})),
)
"""By class: gluon, quark, W, Z and top."""


@dataclass(frozen=True)
class Jet:
    """A jet: its constituents (px, py, pz, E in GeV and charge in e, shape (n, 5)) and its transverse momentum."""

    constituents: Reals
    pt: float


def simulate_jets(
    n: int, seed: int, *, classes: int = 2, particles: int = 64, energy: tuple[float, float] = (500.0, 1000.0)
) -> Iterator[Jets]:
    """Blocks of simulated jets, in random order of the classes.

    Args:
        n: Number of jets in all blocks.
        seed: The same seed, options and version of Pythia give the same jets.
        classes: 2 for gluon and quark; 5 for gluon, quark, W, Z and top.
        particles: Number of particles kept per jet, those with the largest transverse momentum.
        energy: Range of the transverse momentum of the jets in GeV; the distribution is uniform.

    Returns:
        An iterator over blocks of m jets: ``X`` (m, particles, 4) float32, ``mask`` (m, particles) uint8, ``jet``
        (m, 6) float32, all as `described` returns them, and ``y`` (m,) uint8.

    Raises:
        ConfigurationError: An option is outside of its range.
        UserError: Pythia 8 is not installed.
    """
    if classes not in (2, 5):
        raise ConfigurationError(f"expected 2 or 5, found {classes}", where="--classes", cure="write 2 or 5")
    if particles < 1:
        raise ConfigurationError(f"expected at least 1, found {particles}", where="--particles", cure="write 64")
    check_energy(energy, SMALLEST_GEV, LARGEST_GEV)
    if energy[1] < NARROWEST * energy[0]:
        problem = f"expected a HIGH of at least {NARROWEST} LOW, found {energy[0]:g} {energy[1]:g}"
        raise ConfigurationError(problem, where="--energy", cure=f"write --energy {energy[0]:g} {2 * energy[0]:g}")
    return _blocks(imported("pythia8mc", "hep"), n, seed, classes, particles, energy)


def _blocks(
    pythia8: Any, n: int, seed: int, classes: int, particles: int, energy: tuple[float, float]
) -> Iterator[Jets]:
    rng = np.random.default_rng(seed)
    seeds = rng.integers(1, LARGEST_SEED, classes)
    sources = [
        _uniform(_found(pythia8, process, energy, int(own)), energy, rng)
        for process, own in zip(PROCESSES[:classes], seeds, strict=True)
    ]
    for start in range(0, n, JETS_PER_BLOCK):
        y = rng.integers(classes, size=min(JETS_PER_BLOCK, n - start)).astype(np.uint8)
        rows = [described(next(sources[kind]).constituents, particles) for kind in y]
        yield {name: np.stack([row[name] for row in rows]) for name in rows[0]} | {"y": y}


def _found(pythia8: Any, process: Process, energy: tuple[float, float], seed: int) -> Iterator[Jet]:
    """The jets of one event after another that belong to a particle of the hard process."""
    low, high = energy
    generator = pythia8.Pythia("", False)
    settings = (
        "Print:quiet = on",
        f"Beams:eCM = {BEAMS_GEV}",
        "Random:setSeed = on",
        f"Random:seed = {seed}",
        f"PhaseSpace:pTHatMin = {0.9 * low}",
        f"PhaseSpace:pTHatMax = {1.2 * high}",
        # events become rarer with about the fifth power; the weights that correct for this are not used
        "PhaseSpace:bias2Selection = on",
        "PhaseSpace:bias2SelectionPow = 5",
        *process.settings,
    )
    if not all(generator.readString(setting) for setting in settings) or not generator.init():
        raise DataError("Pythia 8 does not start", where="--simulate", cure="see its messages above")
    # anti-kt (power -1) of visible particles (2) with their masses (2), by FastJet's code
    finder = pythia8.SlowJet(-1, RADIUS, low, ALL_RAPIDITIES, 2, 2, None, True, True)
    event = generator.event
    while True:
        if not any(generator.next() for _ in range(MOST_FAILURES)):  # a single event may fail; Pythia says why
            raise DataError("Pythia 8 makes no events", where="--simulate", cure="see its messages above")
        hard = [event[event[i].iBotCopyId()] for i in (5, 6) if event[i].idAbs() in process.particles]
        finder.analyze(event)
        for i in range(finder.sizeJet()):
            near = (np.hypot(one.y() - finder.y(i), _turned(one.phi() - finder.phi(i))) < RADIUS / 2 for one in hard)
            if finder.pT(i) < high and abs(finder.y(i)) < MOST_RAPIDITY and any(near):
                seen = (event[k] for k in finder.constituents(i) if event[k].pT() > THRESHOLD_GEV)
                yield Jet(np.array([(k.px(), k.py(), k.pz(), k.e(), k.charge()) for k in seen]), finder.pT(i))


def _uniform(jets: Iterator[Jet], energy: tuple[float, float], rng: np.random.Generator) -> Iterator[Jet]:
    """Draws from `jets` such that each of `N_BINS` equal bins of transverse momentum has as many."""
    low, high = energy
    waiting: list[deque[Jet]] = [deque(maxlen=MOST_WAITING) for _ in range(N_BINS)]
    while True:
        wanted = waiting[rng.integers(N_BINS)]
        while not wanted:
            jet = next(jets)
            waiting[int((jet.pt - low) / (high - low) * N_BINS)].append(jet)
        yield wanted.popleft()


def described(constituents: Reals, particles: int) -> Jets:
    """The arrays of one jet.

    Args:
        constituents: px, py, pz and E in GeV and charge in e, shape (n, 5).
        particles: Number of particles to keep.

    Returns:
        ``X`` (particles, 4): transverse momentum in GeV, Δη and Δφ from the jet's axis, which is the mean weighted with
        the transverse momentum, and charge in e, ordered by transverse momentum and filled with zeros. ``mask``
        (particles,): 1 for a particle, 0 for filling. ``jet`` (6,): `JET_FEATURES` of all particles.
    """
    px, py, pz, e, charge = constituents[np.argsort(-np.hypot(constituents[:, 0], constituents[:, 1]))].T
    pt = np.hypot(px, py)
    eta = np.arcsinh(pz / pt)
    phi = _turned(np.arctan2(py, px) - np.arctan2(py.sum(), px.sum()))
    eta, phi = (one - np.average(one, weights=pt) for one in (eta, phi))
    kept = min(len(pt), particles)
    x = np.zeros((particles, 4), np.float32)
    x[:kept] = np.stack([pt, eta, phi, charge], 1)[:kept]
    total = pt.sum()
    mass = np.sqrt(max(e.sum() ** 2 - px.sum() ** 2 - py.sum() ** 2 - pz.sum() ** 2, 0))
    girth = np.average(np.hypot(eta, phi), weights=pt)
    ptd = np.sqrt(np.sum(pt**2)) / total
    jet_charge = np.sum(charge * pt**CHARGE_EXPONENT) / total**CHARGE_EXPONENT
    features = (np.hypot(px.sum(), py.sum()), mass, len(pt), girth, ptd, jet_charge)
    mask = (np.arange(particles) < kept).astype(np.uint8)
    return {"X": x, "mask": mask, "jet": np.array(features, np.float32)}


def _turned(angle: Any) -> Any:
    """The same angle between -π and π."""
    return (angle + np.pi) % (2 * np.pi) - np.pi
