"""Test suites for classes of the user, run with pytest: `AlgorithmTests` has the rules of the interface `Algorithm`.

Nothing else of the package imports pytest, and nothing else imports this subpackage.
"""

import pytest

# Before the import: a failed assertion then shows its values, as in a test file.
pytest.register_assert_rewrite("mpi_learn.testing.algorithm_tests")

from mpi_learn.testing.algorithm_tests import AlgorithmTests  # noqa: E402
from mpi_learn.testing.thread_ranks import ThreadComm, run_ranks  # noqa: E402

__all__ = ["AlgorithmTests", "ThreadComm", "run_ranks"]
