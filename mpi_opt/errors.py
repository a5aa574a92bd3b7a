"""What can go wrong in a search, as a tree.

mpi_learn.errors.UserError          the user can mend it: one message, no traceback, exit status 2
├── ConfigurationError                  a key of the file or an argument
├── SpaceError                          the search space contradicts itself, or a value lies outside of it
└── StoreError                          the database cannot be opened, read or written
mpi_learn.errors.MPILearnError
└── SearchFailed                        the search ran and cannot go on; exit status 1
"""

from __future__ import annotations

import re

from mpi_learn.errors import ConfigurationError, MPILearnError, UserError

__all__ = [
    "ConfigurationError",
    "MPILearnError",
    "SearchFailed",
    "SpaceError",
    "StoreError",
    "UserError",
    "without_password",
]


class SpaceError(ConfigurationError):
    """The search space contradicts itself, or a value lies outside of it."""


class StoreError(UserError):
    """The database cannot be opened, read or written."""


class SearchFailed(MPILearnError):
    """The search ran and cannot go on; what is in the store stays there."""


def without_password(url: str) -> str:
    """A store's URL as others may see it."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", url)
