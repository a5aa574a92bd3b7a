"""The simulated jets against the equations of their simulation, and against measured properties of jets."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from mpi_learn.known_data.simulation.fragmentation import fragment, meson_fractions
from mpi_learn.known_data.simulation.heavy_decays import GLUON, QUARK, TOP, W, Z, hard_jets
from mpi_learn.known_data.simulation.particle_jets import JET_FEATURES, produced_hadrons, simulate_jets
from mpi_learn.known_data.simulation.parton_shower import CUTOFF_GEV, shower
from mpi_learn.known_data.simulation.partons import Partons

N = 12_000
PT, ANGLE = 50.0, 0.8


@pytest.fixture(scope="module")
def jets() -> dict[str, np.ndarray]:
    """Jets of all five classes."""
    blocks = list(simulate_jets(N, seed=1, classes=5))
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def feature(jets, name: str, kind: int) -> np.ndarray:
    return jets["jet"][jets["y"] == kind, JET_FEATURES.index(name)]


def partons(n: int, charge: int, pt: float = PT) -> Partons:
    """`n` equal partons."""
    angles = np.full(n, ANGLE)
    return Partons(np.arange(n), np.full(n, pt), np.zeros(n, complex), np.full(n, charge), angles, angles)


def integral(weight, is_gluon: bool) -> float:
    """Of `weight(z, θ)` over all branchings: midpoints in ln θ² and ln(z / (1 - z)), with textbook densities."""
    log_theta = np.linspace(np.log(4 * CUTOFF_GEV / PT), np.log(ANGLE), 1001)
    theta = np.exp((log_theta[1:] + log_theta[:-1]) / 2)[:, None]
    logit = np.linspace(-7, 7, 2801)
    z = 1 / (1 + np.exp(-(logit[1:] + logit[:-1]) / 2))
    k_t = z * (1 - z) * PT * theta
    alpha = 0.118 / (1 + 0.118 * 23 / (12 * np.pi) * 2 * np.log(k_t / 91.19))
    quark = 4 / 3 * (1 + (1 - z) ** 2) / z
    gluon = 3 * ((1 - z) / z + z / (1 - z) + z * (1 - z)) + 5 / 2 * (z**2 + (1 - z) ** 2)  # half of P_gg, and n_f P_qg
    density = alpha / (2 * np.pi) * (gluon if is_gluon else quark) * z * (1 - z) * (k_t > CUTOFF_GEV)
    return np.sum(weight(z, theta) * density) * 2 * np.diff(log_theta)[0] * np.diff(logit)[0]


@pytest.mark.parametrize("charge", [0, 2], ids=["gluon", "quark"])
def test_the_probability_of_no_radiation_is_the_sudakov_factor(charge):
    n = 20_000
    counts = np.bincount(shower(partons(n, charge), np.random.default_rng(2)).origin)
    expected = np.exp(-integral(lambda z, theta: 1.0, charge == 0))
    assert 0.05 < expected < 0.5
    assert (counts == 1).mean() == pytest.approx(expected, abs=4 * np.sqrt(expected / n))


@pytest.mark.parametrize("charge", [0, 2], ids=["gluon", "quark"])
def test_mean_width_agrees_with_one_emission(charge):
    """To first order in the coupling <Σ p |x|> / p = ∫ 2 z (1 - z) θ dP; higher orders change it by the coupling."""
    n = 20_000
    done = shower(partons(n, charge), np.random.default_rng(3))
    width = np.sum(done.pt * np.abs(done.position)) / (n * PT)
    assert width == pytest.approx(integral(lambda z, theta: 2 * z * (1 - z) * theta, charge == 0), rel=0.3)


def test_every_branching_conserves_momentum_centre_and_charge():
    n = 500
    start = partons(n, 2, 700.0)
    done = shower(start, np.random.default_rng(4))
    assert len(done) > 2 * n
    np.testing.assert_allclose(np.bincount(done.origin, done.pt), start.pt)
    for axis in (done.position.real, done.position.imag):
        np.testing.assert_allclose(np.bincount(done.origin, done.pt * axis), 0, atol=1e-9)
    assert np.bincount(done.origin, done.charge).tolist() == [2] * n


def test_mesons_take_the_momentum_of_their_quark_with_the_fractions_of_field_and_feynman():
    z = meson_fractions(5000, np.random.default_rng(5))
    assert kstest(z, lambda x: 0.23 * x + 0.77 * (1 - (1 - x) ** 3)).pvalue > 1e-3
    mesons = fragment(partons(300, 2, 40.0), np.random.default_rng(6))
    np.testing.assert_allclose(np.bincount(mesons.origin, mesons.pt), 40)
    assert set(mesons.charge.tolist()) == {-3, 0, 3}
    assert np.sum(mesons.charge) / 3 / 300 == pytest.approx(2 / 3 - 0.43 * 2 / 3 + 0.57 / 3, abs=0.15)
    assert np.abs(mesons.position).max() < ANGLE


def test_decays_conserve_the_mass_and_are_isotropic():
    n = 3000
    rng = np.random.default_rng(7)
    classes = np.resize([W, Z, TOP], n)
    hadrons = produced_hadrons(classes, np.full(n, 2000.0), rng)
    px, py = (np.bincount(hadrons.origin, hadrons.pt * f(hadrons.position.imag)) for f in (np.cos, np.sin))
    pz, energy = (np.bincount(hadrons.origin, hadrons.pt * f(hadrons.position.real)) for f in (np.sinh, np.cosh))
    mass = np.sqrt(energy**2 - px**2 - py**2 - pz**2)
    for kind, expected, width in ((W, 80.4, 2.1), (Z, 91.2, 2.5), (TOP, 172.6, 1.4)):
        assert np.median(mass[classes == kind]) == pytest.approx(expected, rel=0.01)
        assert np.subtract(*np.quantile(mass[classes == kind], [0.75, 0.25])) == pytest.approx(width, rel=0.3)
    fraction = hard_jets(np.full(n, W), np.full(n, 700.0), rng).second.fraction
    assert kstest(fraction, "uniform").pvalue > 1e-3


def test_masses_peak_where_the_particles_are(jets):
    for kind, expected in ((W, 80.4), (Z, 91.2)):
        low, middle, high = np.quantile(feature(jets, "mass", kind), [0.16, 0.5, 0.84])
        assert middle == pytest.approx(expected, rel=0.06)
        assert (high - low) / 2 < 0.12 * expected
    tops = feature(jets, "mass", TOP)
    assert np.mean((tops > 150) & (tops < 195)) > 0.5  # some lose a prong outside of the cone
    assert np.mean(feature(jets, "mass", QUARK) > 70) < 0.45


def test_gluons_have_more_particles_and_are_wider_than_quarks_by_less_than_their_colour(jets):
    more = feature(jets, "multiplicity", GLUON).mean() / feature(jets, "multiplicity", QUARK).mean()
    wider = feature(jets, "girth", GLUON).mean() / feature(jets, "girth", QUARK).mean()
    assert 1.4 < more < 1.9  # measured at LEP and LHC: 1.5 to 1.7
    assert 1.3 < wider < 9 / 4
    assert feature(jets, "ptd", GLUON).mean() < feature(jets, "ptd", QUARK).mean()
    assert 25 < feature(jets, "multiplicity", QUARK).mean() < 50


def test_particles_are_ordered_and_the_mask_marks_the_existing_ones(jets):
    pt, mask = jets["X"][..., 0], jets["mask"].astype(bool)
    assert (np.diff(pt, axis=1) <= 0).all()
    assert ((pt > 0) == mask).all()
    assert (jets["X"][~mask] == 0).all()
    assert (mask.sum(1) == np.minimum(jets["jet"][:, JET_FEATURES.index("multiplicity")], 64)).all()
    assert set(np.unique(jets["X"][..., 3])) == {-1, 0, 1}
    assert np.abs(jets["X"][..., 1:3]).max() < 1.6


def test_jet_features_are_those_of_the_particles(jets):
    whole = jets["jet"][:, 2] < 64  # no particle was cut
    pt, eta, phi, charge = np.moveaxis(jets["X"][whole].astype(float), -1, 0)
    four = np.stack([pt * np.cosh(eta), pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)]).sum(-1)
    mass = np.sqrt(np.maximum(four[0] ** 2 - (four[1:] ** 2).sum(0), 0))
    girth = np.sum(pt * np.hypot(eta, phi), 1) / pt.sum(1)
    ptd = np.sqrt(np.sum(pt**2, 1)) / pt.sum(1)
    jet_charge = np.sum(charge * np.sqrt(pt), 1) / np.sqrt(pt.sum(1))
    expected = np.stack([np.hypot(four[1], four[2]), mass, (pt > 0).sum(1), girth, ptd, jet_charge], 1)
    np.testing.assert_allclose(jets["jet"][whole], expected, rtol=1e-3, atol=0.02)
    for axis in (eta, phi):
        np.testing.assert_allclose(np.sum(pt * axis, 1) / pt.sum(1), 0, atol=1e-5)


def test_jets_remember_the_charge_of_their_quarks(jets):
    assert abs(feature(jets, "charge", GLUON).mean()) < 0.05
    assert feature(jets, "charge", QUARK).mean() > 0.05  # u outnumbers d
    assert feature(jets, "charge", W).std() > 1.1 * feature(jets, "charge", Z).std()


def test_transverse_momentum_does_not_separate_the_classes(jets):
    """For five seeds the largest quantile of a class was at most 1.052 times the smallest: tops lose some prongs."""
    quantiles = [np.quantile(feature(jets, "pt", kind), [0.05, 0.25, 0.5, 0.75, 0.95]) for kind in range(5)]
    assert (np.max(quantiles, axis=0) / np.min(quantiles, axis=0) < 1.08).all()


def test_a_small_classifier_reaches_a_sensible_area(jets):
    def area(signal: int, background: list[int]) -> float:
        chosen = np.isin(jets["y"], [signal, *background])
        x, y = jets["jet"][chosen], jets["y"][chosen] == signal
        half = len(x) // 2
        fitted = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(x[:half], y[:half])
        return roc_auc_score(y[half:], fitted.predict_proba(x[half:])[:, 1])

    quark_gluon, boson = area(QUARK, [GLUON]), area(W, [QUARK, GLUON])
    assert 0.75 < quark_gluon < 0.9
    assert quark_gluon + 0.05 < boson < 0.99
    assert 0.6 < area(Z, [W]) < 0.9


def test_two_classes_are_gluon_and_quark_and_few_particles_are_the_hardest(jets):
    (few,) = simulate_jets(500, seed=1, particles=5)
    assert few["X"].shape == (500, 5, 4)
    assert set(few["y"].tolist()) == {GLUON, QUARK}
    (many,) = simulate_jets(500, seed=1, particles=200)
    np.testing.assert_array_equal(few["X"], many["X"][:, :5])
    assert many["X"][:, :, 0].sum(1) == pytest.approx(many["jet"][:, 0], rel=0.1)
