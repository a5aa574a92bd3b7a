"""Final-state radiation: coherent branching of quarks and gluons, ordered in angle.

A parton with transverse momentum p radiates at an angle θ, and shares its momentum in the ratio z : 1 - z, with the
probability

    dP = α_s(k_T²) / (2π) P(z) dz dθ²/θ²,    k_T = z (1 - z) p θ > 1.2 GeV

    q → q g    P(z) = C_F (1 + (1 - z)²) / z                        C_F = 4/3
    g → g g    P(z) = C_A (2 (1 - z) / z + z (1 - z))               C_A = 3
    g → q q̄    P(z) = n_f T_R (z² + (1 - z)²)                       T_R = 1/2, n_f = 5

where z belongs to the radiated gluon (the symmetric g → g g is written with its singularity at z → 0 alone). Both
partons then radiate at smaller angles only: colour coherence (Marchesini & Webber, Nucl. Phys. B 238 (1984) 1). The
probability of no radiation follows from the veto algorithm (Sjöstrand, Mrenna & Skands, arXiv:hep-ph/0603175, section
4.2). α_s runs with one loop.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpi_learn.known_data.simulation.partons import Flags, Partons, Reals, joined

C_F, C_A, T_R, N_F = 4 / 3, 3.0, 0.5, 5
CUTOFF_GEV = 1.2
"""The smallest transverse momentum between two partons, below which hadrons form."""

ALPHA_Z, Z_MASS_GEV = 0.118, 91.19
BETA_0 = (33 - 2 * N_F) / (12 * np.pi)
QUARK_CHARGES = np.array([2, -1, -1, 2, -1])
"""Charges of u, d, s, c and b in units of e/3."""


def strong_coupling(k_t: Reals) -> Reals:
    """α_s at the scale `k_t` in GeV, with one loop and five flavours: 0.118 at the mass of the Z boson."""
    running = 1 + ALPHA_Z * BETA_0 * np.log((k_t / Z_MASS_GEV) ** 2)
    return np.asarray(ALPHA_Z / running)


def gluon_emission(z: Reals, is_gluon: Flags) -> Reals:
    """P(z) of the emission of a gluon by a gluon or a quark."""
    return np.where(is_gluon, C_A * (2 * (1 - z) / z + z * (1 - z)), C_F * (1 + (1 - z) ** 2) / z)


def quark_pair(z: Reals, is_gluon: Flags) -> Reals:
    """P(z) of the splitting into a quark and an antiquark: 0 for a quark."""
    return np.where(is_gluon, N_F * T_R * (z**2 + (1 - z) ** 2), 0.0)


def shower(partons: Partons, rng: np.random.Generator) -> Partons:
    """Lets all partons radiate until the cutoff.

    Transverse momentum and its first moments in the plane of η and φ are conserved in every branching.

    Returns:
        The partons at the cutoff, in no order; `origin` is the index in `partons` from which each originates.
    """
    finished: list[Partons] = []
    while len(partons):
        angle, z, accepted, is_pair = _trial(partons, rng)
        may_radiate = partons.pt * angle > 4 * CUTOFF_GEV  # z (1 - z) is at most 1/4
        finished.append(partons.take(~may_radiate))
        partons = replace(partons, max_angle=angle)
        splits = may_radiate & accepted
        unchanged = partons.take(may_radiate & ~accepted)
        partons = joined([unchanged, *_branched(partons.take(splits), z[splits], is_pair[splits], rng)])
    return joined([partons, *finished])


def _trial(partons: Partons, rng: np.random.Generator) -> tuple[Reals, Reals, Flags, Flags]:
    """The next angle and momentum fraction of each parton from a density that bounds the true one from above.

    Returns:
        Angle, z, whether the true density accepts it, and whether it is a quark pair.
    """
    n, is_gluon = len(partons), partons.charge == 0
    bound = np.where(is_gluon, 2 * C_A + N_F * T_R, 2 * C_F)  # z P(z) is smaller for all z
    largest_coupling = strong_coupling(np.array(CUTOFF_GEV))
    log_range = np.maximum(np.log(partons.pt * partons.max_angle / CUTOFF_GEV), 1e-12)  # of z, from cutoff / (p θ) to 1
    rate = largest_coupling / (2 * np.pi) * bound * log_range
    angle = partons.max_angle * np.exp(-0.5 * rng.exponential(size=n) / rate)
    z = np.exp(-log_range * rng.random(n))
    k_t = z * (1 - z) * partons.pt * angle
    with_gluon, with_pair = gluon_emission(z, is_gluon), quark_pair(z, is_gluon)
    coupling = strong_coupling(np.maximum(k_t, CUTOFF_GEV)) / largest_coupling
    accepted = (k_t > CUTOFF_GEV) & (rng.random(n) * bound < coupling * z * (with_gluon + with_pair))
    is_pair = rng.random(n) * (with_gluon + with_pair) < with_pair
    return angle, z, accepted, is_pair


def _branched(parents: Partons, z: Reals, is_pair: Flags, rng: np.random.Generator) -> tuple[Partons, Partons]:
    """Both partons of each branching, with momenta z p and (1 - z) p and the angle `max_angle` between them."""
    between = parents.max_angle * np.exp(2j * np.pi * rng.random(len(parents)))
    flavour = rng.choice(QUARK_CHARGES, len(parents))
    emitted = (z * parents.pt, parents.position + (1 - z) * between, np.where(is_pair, flavour, 0))
    remaining = ((1 - z) * parents.pt, parents.position - z * between, np.where(is_pair, -flavour, parents.charge))
    angle = parents.max_angle
    first, second = (Partons(parents.origin, *child, angle, angle) for child in (emitted, remaining))
    return first, second
