"""The simulated showers against the published parametrisation and the definition of the Molière radius."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import gamma, kstest

from mpi_learn.known_data.simulation.calorimeter import (
    SAMPLING,
    core_and_tail,
    deposited,
    longitudinal_shapes,
    radii,
    simulate_showers,
)

ENERGIES = (5.0, 20.0, 80.0)
N = 400


@pytest.fixture(scope="module")
def showers() -> dict[float, np.ndarray]:
    """Energy -> 400 showers of it."""
    rng = np.random.default_rng(1)
    return {energy: deposited(np.full(N, energy), rng) for energy in ENERGIES}


def average_shape(energy: float) -> tuple[float, float]:
    """α and β of the mean profile, equations (5) and (6) of hep-ex/0001020, for tungsten."""
    log_y = np.log(energy / 0.008)
    alpha = 0.21 + (0.492 + 2.38 / 74) * log_y
    return alpha, (alpha - 1) / (log_y - 0.858)


def mean_depth(voxels: np.ndarray) -> np.ndarray:
    layers = voxels.sum((2, 3))
    return layers @ (np.arange(25) + 0.5) / layers.sum(1)


def test_mean_depth_is_that_of_the_gamma_profile_and_grows_with_the_logarithm_of_the_energy(showers):
    depths = [mean_depth(showers[energy]).mean() for energy in ENERGIES]
    for energy, depth in zip(ENERGIES, depths, strict=True):
        alpha, beta = average_shape(energy)
        assert depth == pytest.approx(alpha / beta, rel=0.04)
    steps = np.diff(depths) / np.log(4)
    assert steps == pytest.approx([1.0, 1.0], abs=0.2)  # a radiation length for each factor e


def test_mean_profile_in_depth_is_a_gamma_distribution(showers):
    alpha, beta = average_shape(80.0)
    layers = showers[80.0].sum((0, 2, 3))
    expected = np.diff(gamma.cdf(np.arange(26), alpha, scale=1 / beta))
    assert np.abs(layers / layers.sum() - expected).sum() < 0.08


def test_the_block_contains_nearly_all_of_the_energy(showers):
    for energy, voxels in showers.items():
        assert 0.96 < voxels.sum() / (N * energy) < 0.995
    last_layers = [voxels[:, -1].sum() / voxels.sum() for voxels in showers.values()]
    assert last_layers == sorted(last_layers)
    assert last_layers[-1] < 0.01


def test_energy_resolution_falls_with_the_square_root_of_the_energy(showers):
    for energy, voxels in showers.items():
        deposit = voxels.sum((1, 2, 3))
        assert deposit.std() / deposit.mean() * np.sqrt(energy) == pytest.approx(SAMPLING, rel=0.15)


def test_nine_tenths_of_the_energy_are_within_a_moliere_radius(showers):
    across = np.hypot(*np.meshgrid(np.arange(-12, 13), np.arange(-12, 13))) * 0.25
    for energy, voxels in showers.items():
        lateral = voxels.sum((0, 1))
        assert lateral[across < 1].sum() / (N * energy) == pytest.approx(0.9, abs=0.04)
        assert lateral[across < 2].sum() / (N * energy) == pytest.approx(0.95, abs=0.02)


def test_showers_are_round_and_centred(showers):
    lateral = showers[80.0].sum((0, 1))
    places = np.arange(-12, 13)
    assert abs(lateral.sum(0) @ places) / lateral.sum() < 0.1
    assert abs(lateral.sum(1) @ places) / lateral.sum() < 0.1
    assert np.abs(lateral - lateral.T).sum() / lateral.sum() < 0.05


def test_distances_from_the_axis_follow_core_and_tail():
    tau, log_e = np.full(5000, 1.2, np.float32), np.full(5000, np.log(30.0), np.float32)
    core, tail, share = (float(one[0]) for one in core_and_tail(tau, log_e))
    assert 0 < core < tail
    assert 0 < share < 1
    drawn = radii(tau, log_e, np.random.default_rng(2))
    inside = kstest(drawn, lambda r: share * r**2 / (r**2 + core**2) + (1 - share) * r**2 / (r**2 + tail**2))
    assert inside.pvalue > 1e-3


def test_the_tail_takes_over_with_depth():
    tau = np.array([0.2, 1.0, 2.5], np.float32)
    core, _, share = core_and_tail(tau, np.full(3, np.log(30.0), np.float32))
    assert (np.diff(core) > 0).all()
    assert (np.diff(share) < 0).all()


def test_the_growth_of_the_tail_depends_on_the_energy_as_published():
    """Far behind the maximum, R_T is an exponential function of depth, with the rate 0.3585 + 0.0421 ln E."""
    depths, rates = np.array([8.0, 9.0]), []
    for energy in (1.0, 100.0):
        _, tail, _ = core_and_tail(depths, np.full(2, np.log(energy)))
        rates.append(np.diff(np.log(tail))[0])
    assert rates == pytest.approx([0.3585, 0.3585 + 0.0421 * np.log(100)], abs=1e-5)


def test_depth_and_shape_fluctuate_together_as_published():
    energy = 30.0
    log_y = np.log(energy / 0.008)
    depth, alpha = longitudinal_shapes(np.full(20_000, energy), np.random.default_rng(3))
    assert np.log(depth).mean() == pytest.approx(np.log(log_y - 0.812), abs=0.005)
    assert np.log(depth).std() == pytest.approx(1 / (-1.4 + 1.26 * log_y), rel=0.03)
    assert np.log(alpha).std() == pytest.approx(1 / (-0.58 + 0.86 * log_y), rel=0.03)
    assert np.corrcoef(np.log(depth), np.log(alpha))[0, 1] == pytest.approx(0.705 - 0.023 * log_y, abs=0.02)


def test_blocks_hold_energies_of_the_range_with_their_showers():
    blocks = list(simulate_showers(70, seed=3, energy=(20.0, 60.0)))
    energies = np.concatenate([block["energy"] for block in blocks])[:, 0]
    voxels = np.concatenate([block["X"] for block in blocks])
    assert voxels.shape == (70, 25, 25, 25, 1)
    assert voxels.dtype == np.float32
    assert (voxels >= 0).all()
    assert 20 <= energies.min() < 25
    assert 55 < energies.max() <= 60
    assert voxels.sum((1, 2, 3, 4)) / energies == pytest.approx(np.ones(70), abs=0.2)
