"""The range of energies of a simulation."""

from mpi_learn.errors import ConfigurationError


def check_energy(energy: tuple[float, float], smallest: float, largest: float) -> None:
    """Raises ConfigurationError unless `energy` is an ordered pair from `smallest` to `largest` GeV."""
    low, high = energy
    if not smallest <= low <= high <= largest:
        raise ConfigurationError(
            f"expected LOW HIGH between {smallest:g} and {largest:g} GeV, found {low:g} {high:g}",
            where="--energy",
            cure=f"for example --energy {smallest:g} {largest:g}",
        )
