"""Independent fragmentation of partons into mesons (Field & Feynman, Nucl. Phys. B 136 (1978) 1).

A quark of momentum p takes an antiquark from the vacuum and forms a meson with the fraction z of p, distributed as

    f(z) = 1 - a + 3 a (1 - z)²,    a = 0.77;

the partner of the antiquark continues with (1 - z) p until less than 5 GeV is left. Pairs of u, d and s have the
ratio 0.43 : 0.43 : 0.14 and a Gaussian transverse momentum of 0.35 GeV. A gluon first becomes a light quark and
antiquark. Charge is conserved along the chain, except for the last meson. A meson is closer to its parton than
the colour partner of the parton is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpi_learn.known_data.simulation.partons import Integers, Partons, Points, Reals, joined

SOFTNESS = 0.77
LAST_GEV = 5.0
"""A quark with less momentum becomes the last meson of its chain."""

QUARK_KT_GEV = 0.35
VACUUM_CHARGES, VACUUM_SHARES = np.array([2, -1, -1]), np.array([0.43, 0.43, 0.14])


def fragment(partons: Partons, rng: np.random.Generator) -> Partons:
    """The mesons of all partons; `charge` is -3, 0 or 3, and `origin` stays."""
    quarks = _quarks(partons, rng)
    transverse = np.zeros(len(quarks), np.complex128)  # of the quark, relative to the chain, in GeV
    mesons: list[Partons] = []
    while len(quarks):
        is_last = quarks.pt < LAST_GEV
        z = np.where(is_last, 1.0, meson_fractions(len(quarks), rng))
        partner = _partners(quarks.charge, rng)
        kick = rng.normal(scale=QUARK_KT_GEV / np.sqrt(2), size=(2, len(quarks)))
        recoil = np.where(is_last, 0, kick[0] + 1j * kick[1])
        pt = z * quarks.pt
        shift = within((z * transverse - recoil) / pt, quarks.opening)
        mesons.append(replace(quarks, pt=pt, position=quarks.position + shift, charge=quarks.charge - partner))
        transverse = ((1 - z) * transverse + recoil)[~is_last]
        quarks = replace(quarks, pt=(1 - z) * quarks.pt, charge=partner).take(~is_last)
    return joined(mesons)


def meson_fractions(n: int, rng: np.random.Generator) -> Reals:
    """`n` values of z distributed as f(z)."""
    flat = rng.random(n)
    return np.where(rng.random(n) < SOFTNESS, 1 - np.cbrt(flat), flat)


def within(shift: Points, limit: Reals) -> Points:
    """Small shifts as they are; larger ones in the same direction, but shorter than `limit`."""
    return np.asarray(shift / np.sqrt(1 + (np.abs(shift) / limit) ** 2))


def _quarks(partons: Partons, rng: np.random.Generator) -> Partons:
    """Splits each gluon into a collinear quark and antiquark with random fractions of its momentum; quarks stay."""
    gluons, quarks = partons.take(partons.charge == 0), partons.take(partons.charge != 0)
    z = rng.random(len(gluons))
    flavour = rng.choice(VACUUM_CHARGES, len(gluons), p=VACUUM_SHARES)
    pair = (
        replace(gluons, pt=z * gluons.pt, charge=flavour),
        replace(gluons, pt=(1 - z) * gluons.pt, charge=-flavour),
    )
    return joined([quarks, *pair])


def _partners(charges: Integers, rng: np.random.Generator) -> Integers:
    """The charges of the quarks (for antiquarks, the antiquarks) that continue after a meson."""
    sign = np.where((charges == 2) | (charges == -1), 1, -1)
    return np.asarray(sign * rng.choice(VACUUM_CHARGES, len(charges), p=VACUUM_SHARES))
