"""Test suites for classes of the user, run with pytest: `StrategyTests` has the rules of the interface `Strategy`.

Nothing else of the package imports pytest, and nothing else imports this subpackage.
"""

import pytest

# Before the import: a failed assertion then shows its values, as in a test file.
pytest.register_assert_rewrite("mpi_opt.testing.strategy_tests")

from mpi_opt.testing.strategy_tests import (  # noqa: E402
    SPACES,
    StrategyTests,
    cost,
    run,
)

__all__ = ["SPACES", "StrategyTests", "cost", "run"]
