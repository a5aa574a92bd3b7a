"""Gives all ranks of a training the same Python files of the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpi_learn.mpi.agreement import result_of_rank
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.settings.user_files.fixed_code import fix, fixed, fixed_code, is_fixed
from mpi_learn.settings.user_files.source_code import SourceCode, names_of_functions, read_source_code
from mpi_learn.training.configuration import TrainingConfiguration


@contextmanager
def same_code(configuration: TrainingConfiguration, comm: Communicator) -> Iterator[None]:
    """Inside the block, all ranks run the files of the user's functions as rank 0 has read them once.

    A search has read the files before: they are not read again, and files that it did not know keep their content until
    its end. Collective over `comm` at the beginning of the block.
    """

    def read() -> SourceCode:
        return read_source_code(names_of_functions(configuration.model_dump()), Path.cwd(), known=fixed_code())

    code = fixed_code().joined(result_of_rank(comm, read))
    if is_fixed():
        fix(code)
        yield
    else:
        with fixed(code):
            yield
