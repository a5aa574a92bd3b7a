"""Simulators of jets and calorimeter showers, for sample sizes that cannot be shipped."""
