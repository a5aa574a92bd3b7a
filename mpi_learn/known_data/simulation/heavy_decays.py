"""The hard partons of a jet: one for a quark or gluon, the quarks of its decay for a W or Z boson or a top quark.

Decays are isotropic and exact in light-cone variables. A particle of momentum P and mass M that decays into A and B,
which take z P and (1 - z) P at a distance Δ in the plane of η and φ, has

    M² = m_A² / z + m_B² / (1 - z) + z (1 - z) P² Δ²,    z = (E_A* + p* cos θ*) / M

with E_A* and p* of A at rest of the decaying particle. A and B become massive by their own radiation, so Δ is computed
after the shower: masses of decaying particles are conserved, and Δ is reduced by the radiation (recoil).

Not simulated: spin correlations (W bosons from top quarks are unpolarised), radiation of the top quark itself, and mass
effects of b and c quarks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mpi_learn.known_data.simulation.partons import Flags, Integers, Partons, Points, Reals, summed

GLUON, QUARK, W, Z, TOP = range(5)

W_MASS_GEV, W_WIDTH_GEV = 80.38, 2.09
Z_MASS_GEV, Z_WIDTH_GEV = 91.19, 2.50
TOP_MASS_GEV, TOP_WIDTH_GEV = 172.6, 1.42
MAX_WIDTHS = 10
"""Breit-Wigner masses are cut at this number of widths from the centre."""

UP, DOWN = 2, -1
"""Charges of quarks in units of e/3."""
UP_SHARE_OF_QUARKS = 2 / 3
UP_SHARE_OF_Z = 0.34
"""Fractions of up-type quarks: of scattered quarks (mostly valence quarks of the proton), and of hadronic Z decays."""
RADIUS = 0.8
"""The radius of a jet, and the largest angle at which a single quark or gluon radiates."""


@dataclass(frozen=True)
class Decay:
    """One level of a decay: a particle into A and B; all columns have shape (n jets,).

    Attributes:
        exists: Whether the jet has this decay.
        mass: Mass of the decaying particle, GeV.
        fraction: z of A.
        direction: Unit vector Δη + i Δφ from B to A.
    """

    exists: Flags
    mass: Reals
    fraction: Reals
    direction: Points

    def distance(self, pt: Reals, squared_masses: tuple[Reals, Reals]) -> Reals:
        """Δ between A and B of these squared masses, for a decaying particle of transverse momentum `pt`."""
        z, rest = self.fraction, 1 - self.fraction
        free = self.mass**2 - squared_masses[0] / z - squared_masses[1] / rest
        return np.sqrt(np.maximum(free, 0) / (z * rest)) / pt


@dataclass(frozen=True)
class HardJets:
    """The hard partons of jets, and how their radiation is combined.

    Attributes:
        partons: At most three per jet, at position 0; `origin` is 3 times the index of the jet plus the slot.
        pt: Transverse momentum of each jet, GeV.
        first: t → W b (A is the W boson). The b quark is in slot 2.
        second: W, Z → q q̄, in slots 0 and 1.
    """

    partons: Partons
    pt: Reals
    first: Decay
    second: Decay

    def assembled(self, radiated: Partons) -> Partons:
        """`radiated` with `position` relative to the jet, and with the index of the jet as `origin`.

        Args:
            radiated: The products of the hard partons, with their `origin` and positions relative to them.
        """
        centre, squared = centres_and_squared_masses(radiated, 3 * len(self.pt))
        masses = squared.reshape(-1, 3)
        of_boson = np.where(self.first.exists, self.first.fraction, 1.0) * self.pt
        across_boson = self.second.distance(of_boson, (masses[:, 0], masses[:, 1])) * self.second.direction
        across_top = self.first.distance(self.pt, (self.second.mass**2, masses[:, 2])) * self.first.direction
        shifts = np.zeros((len(self.pt), 3), np.complex128)
        shifts[:, 0] = (1 - self.second.fraction) * across_boson * self.second.exists
        shifts[:, 1] = -self.second.fraction * across_boson * self.second.exists
        shifts[:, :2] += ((1 - self.first.fraction) * across_top * self.first.exists)[:, None]
        shifts[:, 2] = -self.first.fraction * across_top * self.first.exists
        position = radiated.position + (shifts.ravel() - centre)[radiated.origin]
        return replace(radiated, origin=radiated.origin // 3, position=position)


def hard_jets(classes: Integers, pt: Reals, rng: np.random.Generator) -> HardJets:
    """The hard partons of jets of these classes and transverse momenta in GeV, both of shape (n,)."""
    n, is_top = len(pt), classes == TOP
    z_mass = _breit_wigner(Z_MASS_GEV, Z_WIDTH_GEV, n, rng)
    w_mass = _breit_wigner(W_MASS_GEV, W_WIDTH_GEV, n, rng)
    boson_mass = np.where(classes == Z, z_mass, w_mass)
    is_boson = (classes == W) | (classes == Z)
    top_mass = _breit_wigner(TOP_MASS_GEV, TOP_WIDTH_GEV, n, rng)
    first = _decay(is_top, top_mass, boson_mass, rng)
    second = _decay(is_boson | is_top, boson_mass, np.zeros(n), rng)
    boson_pt = np.where(is_top, first.fraction, 1.0) * pt
    none = np.zeros(n)
    angle = np.where(second.exists, second.distance(boson_pt, (none, none)), RADIUS)
    top_angle = first.distance(pt, (boson_mass**2, none))
    momenta = [
        np.where(second.exists, second.fraction, 1.0) * boson_pt,
        (1 - second.fraction) * boson_pt,
        pt - boson_pt,
    ]
    exists = np.stack([np.ones(n, bool), second.exists, is_top], 1).ravel()
    angles = np.stack([angle, angle, top_angle], 1).ravel()
    partons = Partons(
        origin=np.arange(3 * n),
        pt=np.stack(momenta, 1).ravel(),
        position=np.zeros(3 * n, np.complex128),
        charge=_charges(classes, rng).ravel(),
        max_angle=angles,
        opening=angles,
    )
    return HardJets(partons.take(exists), pt, first, second)


def _breit_wigner(mass: float, width: float, n: int, rng: np.random.Generator) -> Reals:
    """`n` masses of a non-relativistic Breit-Wigner distribution, cut at `MAX_WIDTHS`."""
    edge = np.arctan(2 * MAX_WIDTHS)
    return mass + width / 2 * np.tan(rng.uniform(-edge, edge, n))


def _decay(exists: Flags, mass: Reals, mass_a: Reals, rng: np.random.Generator) -> Decay:
    """An isotropic decay into A of `mass_a` and a massless B."""
    n = len(mass)
    momentum = (mass**2 - mass_a**2) / (2 * mass)
    energy = (mass**2 + mass_a**2) / (2 * mass)
    fraction = (energy + momentum * rng.uniform(-1, 1, n)) / mass
    return Decay(exists, mass, np.clip(fraction, 1e-3, 1 - 1e-3), np.exp(2j * np.pi * rng.random(n)))


def _charges(classes: Integers, rng: np.random.Generator) -> Integers:
    """Charges of the three slots, shape (n, 3). Jets and anti-jets are equally frequent, except for single quarks."""
    n = len(classes)
    valence = np.where(rng.random(n) < UP_SHARE_OF_QUARKS, UP, DOWN)
    of_z = np.where(rng.random(n) < UP_SHARE_OF_Z, UP, DOWN)
    sign = rng.choice([-1, 1], n)
    first = np.select([classes == GLUON, classes == QUARK, classes == Z], [0, valence, of_z], sign * UP)
    second = np.where(classes == Z, -of_z, -sign * DOWN)  # W⁺ → u d̄
    return np.stack([first, second, sign * DOWN], 1)  # t → W⁺ b


def centres_and_squared_masses(partons: Partons, n: int) -> tuple[Points, Reals]:
    """For all products of each of `n` origins: x = Σ p_i x_i / p, and M² = p Σ p_i |x_i - x|² in GeV²."""
    total = summed(partons.origin, partons.pt, n)
    moments = [summed(partons.origin, partons.pt * axis, n) for axis in (partons.position.real, partons.position.imag)]
    centre: Points = np.asarray((moments[0] + 1j * moments[1]) / np.maximum(total, 1e-12), np.complex128)
    spread = partons.pt * np.abs(partons.position - centre[partons.origin]) ** 2
    return centre, total * summed(partons.origin, spread, n)
