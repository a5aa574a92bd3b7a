"""The jets of Pythia 8 against published moments, and against the definitions of their arrays."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mpi_learn.known_data.simulation.pythia_jets import JET_FEATURES, RADIUS, simulate_jets
from tests.docs.test_data_sets import CLASS_NAMES, rows
from tests.optional_packages import needs

pytestmark = needs("pythia8mc")
GLUON, QUARK, W, Z, TOP = range(5)
N, PARTICLES = 800, 200


@pytest.fixture(scope="module")
def jets() -> dict[str, np.ndarray]:
    """Jets of all five classes."""
    blocks = list(simulate_jets(N, seed=1, classes=5, particles=PARTICLES))
    assert len(blocks) == 2
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def feature(jets, name: str, kind: int) -> np.ndarray:
    return jets["jet"][jets["y"] == kind, JET_FEATURES.index(name)]


def charged(jets, kind: int) -> float:
    """The mean number of charged particles above 0.5 GeV."""
    return float(np.mean(np.sum(jets["X"][jets["y"] == kind][..., 3] != 0, axis=1)))


def test_gluons_have_the_measured_multiple_of_the_charged_particles_of_quarks(jets):
    """CDF, Phys. Rev. Lett. 94 (2005) 171802: 1.64 ± 0.17."""
    assert charged(jets, GLUON) / charged(jets, QUARK) == pytest.approx(1.64, abs=0.17)


def test_a_w_boson_has_its_measured_number_of_charged_particles(jets):
    """PDG 2024: 19.39 ± 0.08 in a decay. The underlying event adds about 1.5 per unit of area to a jet of
    area 2 (ATLAS, JHEP 03 (2017) 157); some particles are below the threshold or outside of the jet."""
    assert charged(jets, W) == pytest.approx(19.4 + 3.0, abs=1.5)


def test_masses_are_those_of_the_decaying_particles(jets):
    """PDG 2024. Particles of the underlying event add to a mass; some tops lose a prong."""
    medians = [float(np.median(feature(jets, "mass", kind))) for kind in (W, Z, TOP)]
    for found, published in zip(medians, (80.4, 91.2, 172.6), strict=True):
        assert 0.97 < found / published < 1.12
    assert medians[1] - medians[0] == pytest.approx(91.2 - 80.4, abs=4)


def test_mean_squared_masses_of_quarks_and_gluons_agree_with_the_leading_order(jets):
    """G. P. Salam, Eur. Phys. J. C 67 (2010) 637: C α_s p² R² / π, with C = 3/8 C_F, or 7/20 C_A + 1/20 n_f T_R."""
    constants = {QUARK: 3 / 8 * 4 / 3, GLUON: 7 / 20 * 3 + 1 / 20 * 5 / 2}
    found = {k: np.mean((feature(jets, "mass", k) / feature(jets, "pt", k) / RADIUS) ** 2) for k in constants}
    assert np.sqrt(found[GLUON] / found[QUARK]) == pytest.approx(np.sqrt(constants[GLUON] / constants[QUARK]), rel=0.15)
    for kind, constant in constants.items():
        assert 1 < found[kind] / (constant * 0.1 / np.pi) < 2.2  # higher orders and the underlying event add to it


def test_jets_are_round_as_those_of_anti_kt(jets):
    """Of a jet by k_t, a third of the particles in the ring beyond R would be in the jet."""
    pt, eta, phi, _ = np.moveaxis(jets["X"], -1, 0)
    distance = np.where(pt > 0, np.hypot(eta, phi), 0)
    assert 0.6 < np.median(distance.max(axis=1)) < 1.05
    assert np.sum(distance > 1.1 * RADIUS) < 0.02 * np.sum(pt > 0)


def test_transverse_momentum_is_uniform_and_does_not_separate_the_classes(jets):
    pt = jets["jet"][:, 0]
    assert np.histogram(pt, 5, (500, 1000))[0] / N == pytest.approx(np.full(5, 0.2), abs=0.04)
    means = [feature(jets, "pt", kind).mean() for kind in range(5)]
    assert means == pytest.approx([750] * 5, abs=40)


def test_particles_are_ordered_and_the_mask_marks_the_existing_ones(jets):
    pt, mask = jets["X"][..., 0], jets["mask"].astype(bool)
    assert (np.diff(pt, axis=1) <= 0).all()
    assert ((pt > 0.5) == mask).all()
    assert (jets["X"][~mask] == 0).all()
    assert (mask.sum(1) == np.minimum(jets["jet"][:, JET_FEATURES.index("multiplicity")], PARTICLES)).all()
    assert set(np.unique(jets["X"][..., 3])) == {-1, 0, 1}


def test_jet_features_are_those_of_the_particles(jets):
    whole = jets["jet"][:, 2] <= PARTICLES
    pt, eta, phi, charge = np.moveaxis(jets["X"][whole].astype(float), -1, 0)
    four = np.stack([pt * np.cosh(eta), pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)]).sum(-1)
    mass = np.sqrt(np.maximum(four[0] ** 2 - (four[1:] ** 2).sum(0), 0))
    girth = np.sum(pt * np.hypot(eta, phi), 1) / pt.sum(1)
    ptd = np.sqrt(np.sum(pt**2, 1)) / pt.sum(1)
    jet_charge = np.sum(charge * np.sqrt(pt), 1) / np.sqrt(pt.sum(1))
    expected = np.stack([np.hypot(four[1], four[2]), mass, (pt > 0).sum(1), girth, ptd, jet_charge], 1)
    # the particles have no mass in `expected`
    np.testing.assert_allclose(np.delete(jets["jet"][whole], 1, 1), np.delete(expected, 1, 1), rtol=1e-3, atol=0.02)
    assert 1 < np.median(jets["jet"][whole, 1] / mass) < 1.08
    for axis in (eta, phi):
        np.testing.assert_allclose(np.sum(pt * axis, 1) / pt.sum(1), 0, atol=1e-5)


def test_the_table_of_the_documentation_matches_the_simulation(jets):
    table = {row[0]: row[1:] for row in rows("Simulated jets") if row[0] in CLASS_NAMES}
    assert list(table) == list(CLASS_NAMES)
    for kind, name in enumerate(CLASS_NAMES):
        mass, n, girth, ptd = (feature(jets, key, kind) for key in ("mass", "multiplicity", "girth", "ptd"))
        found = [n.mean(), n.std(), *np.quantile(mass, [0.5, 0.16, 0.84]), girth.mean(), ptd.mean()]
        said = [
            float(number)
            for number in re.findall(r"[\d.]+", " ".join(cell.replace("68 %", "") for cell in table[name]))
        ]
        assert said == pytest.approx(found, rel=0.2), name


def test_few_particles_are_the_hardest_and_an_option_changes_no_jet():
    (few,) = simulate_jets(20, seed=1, particles=5, energy=(200.0, 300.0))
    assert few["X"].shape == (20, 5, 4)
    assert set(few["y"].tolist()) == {GLUON, QUARK}
    (many,) = simulate_jets(20, seed=1, particles=PARTICLES, energy=(200.0, 300.0))
    np.testing.assert_array_equal(few["X"], many["X"][:, :5])
