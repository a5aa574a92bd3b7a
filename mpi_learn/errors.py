"""The exceptions of MPI Learn.

MPILearnError
├── UserError              the user can fix it: one message, no traceback, exit status 2
│   ├── ConfigurationError     a key of a YAML file or an argument: file, key and cure
│   ├── DataError              a data file: file, dataset and cure
│   └── ModelError             the model or the function that builds it
│       └── OutOfMemory            its batch does not fit the memory of a GPU
├── SavingError            the trained model or a checkpoint cannot be saved; exit status 1
└── TrainingError          a running training failed: rank, host and traceback; exit status 1
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any


class MPILearnError(Exception):
    """Base class of all exceptions that this package raises on purpose.

    Attributes:
        exit_status: The exit status of a command that ends with this error.
        is_temporary: Whether the same command may succeed later, because the cause is a lost rank, a full disk or a
            locked database.
        host_fault: The kind of fault of a host that has caused it (`mpi_learn.mpi.host_fault`); empty if there is none.
    """

    exit_status = 1
    is_temporary = False
    host_fault = ""


class UserError(MPILearnError):
    """An error that the user can fix.

    Args:
        problem: What was expected and what was found, in one sentence.
        where: The file and key, e.g. ``"digits.yaml: training.batch_size"``. A caller that knows the file may add it
            with `at`.
        cure: What to write or do instead.
    """

    exit_status = 2

    def __init__(self, problem: str, *, where: str = "", cure: str = "") -> None:
        super().__init__(problem)
        self.problem, self.where, self.cure = problem, where, cure

    def __str__(self) -> str:
        head = f"{self.where}: {self.problem}" if self.where else self.problem
        return f"{head}\n  → {self.cure}" if self.cure else head

    def __reduce__(self) -> tuple[Any, ...]:  # the default cannot restore keyword-only arguments
        made = partial(type(self), self.problem, where=self.where, cure=self.cure)
        return made, (), {"host_fault": self.host_fault}

    def at(self, where: str) -> UserError:
        """The same error, with `where` in front of its present location."""
        place = f"{where}{self.where}" if self.where.startswith(".") else ": ".join(filter(None, (where, self.where)))
        return type(self)(self.problem, where=place, cure=self.cure)


class ConfigurationError(UserError):
    """A YAML file, a command line or an argument is invalid."""


class DataError(UserError):
    """A data file is missing or unreadable, or its content differs from the configuration."""


class ModelError(UserError):
    """The model cannot be built, or does not fit the data."""


class OutOfMemory(ModelError):
    """The memory of a GPU is not enough for a batch."""


class SavingError(MPILearnError):
    """A trained model or a checkpoint cannot be written completely. The message states what is saved."""


class TrainingError(MPILearnError):
    """A running training failed on one rank; the same error is raised on every rank.

    Args:
        reason: Class and message of the exception, in one line.
        rank: The rank in the training's communicator that raised the exception.
        host: The host of that rank.
        traceback: The traceback of that rank, as text.
    """

    def __init__(self, reason: str, *, rank: int = 0, host: str = "", traceback: str = "") -> None:
        super().__init__(reason)
        self.reason, self.rank, self.host, self.traceback = reason, rank, host, traceback

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}: {self.reason}\n{self.traceback}".rstrip()

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(TrainingError, self.reason, rank=self.rank, host=self.host, traceback=self.traceback)
        return made, (), {"host_fault": self.host_fault}


NUMPY_WORDS = {
    "pickle": "it does not begin as a file of NumPy, or it contains Python objects instead of numbers",
    "Python objects in dtype": "it contains Python objects instead of numbers",
}
"""A part of a message of NumPy -> what it means. NumPy takes a file that it does not know for pickled objects, and
advises to load it unsafely."""


def reading_error(error: Exception) -> str:
    """Why a library cannot read a file, in one line, for the user."""
    text = " ".join(str(error).split()) or type(error).__name__
    return next((meaning for part, meaning in NUMPY_WORDS.items() if part in text), text)


LONGEST_TEXT = 8000
"""The longest text of an error, in characters: about 100 lines. Longer ones lose their middle."""

LONGEST_REASON = 1000
"""The longest message of one exception, in characters."""


def shortened(text: str, longest: int = LONGEST_TEXT) -> str:
    """`text` with at most about `longest` characters: its first and its last part.

    An exception of a user may have megabytes of text. Both ends are kept: a traceback names the exception in its last
    line, and the place of the call in its first ones. Passwords are removed before the text is cut, because a part of
    one would not be recognised later.
    """
    if len(text) <= longest:
        return text
    text = without_passwords(text)
    head, tail = text[: longest // 2], text[-(longest // 2) :]
    return f"{head} [… {len(text) - len(head) - len(tail):,} characters left out …] {tail}"


PASSWORD = re.compile(r"(://[^:/?#@\s]*):(?!\d+(?:[/?#\s]|$))\S*@")
"""User and password in a URL. Digits after the colon are a port unless an @ follows."""

SECRET_PARAMETER = re.compile(
    r"([?&;](?:[\w.-]*(?:passw|pwd|secret|token|credential|signature)[\w.-]*|pass|sig|auth|authz|(?:api|access)?_?key)=)"
    r"[^&#\s'\"]*",
    re.IGNORECASE,
)
"""A query parameter of a URL that may contain a password, such as ``?password=`` or ``&X-Amz-Signature=``."""


def without_passwords(text: str) -> str:
    """`text` with ``***`` in place of the passwords in URLs, of users and in query parameters."""
    if "://" not in text and "=" not in text:
        return text
    return SECRET_PARAMETER.sub(r"\1***", PASSWORD.sub(r"\1:***@", text))
