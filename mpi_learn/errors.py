"""What can go wrong, as a tree.

MPILearnError
├── UserError              the user can mend it: one message, no traceback, exit status 2
│   ├── ConfigurationError     a key of a YAML file or an argument: names file, key and cure
│   ├── DataError              a data file: names file, dataset and cure
│   └── ModelError             the model or the function that builds it
├── SavingError            the trained model cannot be saved; exit status 1
└── TrainingError          a training that had begun failed: carries the rank, host and traceback; exit status 1
"""

from __future__ import annotations

import re


class MPILearnError(Exception):
    """Root of everything that this package raises on purpose."""


class UserError(MPILearnError):
    """Something that the user can mend.

    Args:
        problem: What was expected and what came, in one sentence.
        where: The file and key, e.g. ``"digits.yaml: training.batch_size"``; may be filled in later by a caller that
            knows the file.
        cure: What to write or do instead.
    """

    def __init__(self, problem: str, *, where: str = "", cure: str = "") -> None:
        super().__init__(problem)
        self.problem, self.where, self.cure = problem, where, cure

    def __str__(self) -> str:
        head = f"{self.where}: {self.problem}" if self.where else self.problem
        return f"{head}\n  → {self.cure}" if self.cure else head

    def __reduce__(self):  # keyword-only arguments do not survive the default way through a pickle
        return _rebuild, (type(self), self.problem, self.where, self.cure)

    def at(self, where: str) -> UserError:
        """The same error, placed: ``where`` goes before what was known already."""
        place = f"{where}{self.where}" if self.where.startswith(".") else ": ".join(filter(None, (where, self.where)))
        return type(self)(self.problem, where=place, cure=self.cure)


def _rebuild(kind: type[UserError], problem: str, where: str, cure: str) -> UserError:
    return kind(problem, where=where, cure=cure)


class ConfigurationError(UserError):
    """A YAML file, a command line or an argument says something that cannot be."""


class DataError(UserError):
    """A data file is missing, unreadable or does not hold what the configuration says."""


class ModelError(UserError):
    """The model cannot be built, or does not fit the data."""


class SavingError(MPILearnError):
    """A trained model cannot be saved as a whole. The message says what is saved instead."""


class TrainingError(MPILearnError):
    """A training that had begun failed on some rank; the same error is raised on every rank.

    Args:
        reason: The first line: kind and message of what was raised.
        rank: The rank in the training's communicator on which it was raised.
        host: That rank's host.
        traceback: That rank's traceback, as text.
    """

    def __init__(self, reason: str, *, rank: int = 0, host: str = "", traceback: str = "") -> None:
        super().__init__(reason)
        self.reason, self.rank, self.host, self.traceback = reason, rank, host, traceback

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}: {self.reason}\n{self.traceback}".rstrip()

    def __reduce__(self):
        return _rebuild_training_error, (self.reason, self.rank, self.host, self.traceback)


def _rebuild_training_error(reason: str, rank: int, host: str, traceback: str) -> TrainingError:
    return TrainingError(reason, rank=rank, host=host, traceback=traceback)


USER = re.compile(r"(://[^:/?#@\s]*):(?!\d+(?:[/?#\s]|$))\S*@")
"""A user and password in a URL; digits after the colon are a port unless an @ follows them."""

QUERY = re.compile(
    r"([?&;](?:[\w.-]*(?:passw|pwd|secret|token|credential|signature)[\w.-]*|pass|sig|auth|authz|(?:api|access)?_?key)=)"
    r"[^&#\s'\"]*",
    re.IGNORECASE,
)
"""A query parameter of a URL that is or may be a password, such as ``?password=`` or ``&X-Amz-Signature=``."""


def without_passwords(text: str) -> str:
    """`text` with ``***`` in place of the passwords in URLs: those of users and those in query parameters."""
    if "://" not in text and "=" not in text:
        return text
    return QUERY.sub(r"\1***", USER.sub(r"\1:***@", text))
