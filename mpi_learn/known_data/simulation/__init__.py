"""Simulators of jets and calorimeter showers, for sample sizes that cannot be shipped."""

from mpi_learn.known_data.simulation.calorimeter import simulate_showers
from mpi_learn.known_data.simulation.particle_jets import simulate_jets

__all__ = ["simulate_jets", "simulate_showers"]
