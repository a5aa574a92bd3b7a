"""What can go wrong in a search, as a tree.

mpi_learn.errors.UserError          the user can fix it: one message, no traceback, exit status 2
├── ConfigurationError                  a key of the file or an argument
├── SpaceError                          the search space contradicts itself, or a value is outside of it
└── StoreError                          the database cannot be opened, read or written
mpi_learn.errors.MPILearnError
└── SearchFailed                        the search ran and cannot go on; exit status 1
"""

from __future__ import annotations

from mpi_learn.errors import ConfigurationError, MPILearnError, UserError, without_passwords

__all__ = [
    "ConfigurationError",
    "MPILearnError",
    "SearchFailed",
    "SpaceError",
    "StoreError",
    "UserError",
    "without_passwords",
]


class SpaceError(ConfigurationError):
    """The search space contradicts itself, or a value is outside of it."""


class StoreError(UserError):
    """The database cannot be opened, read or written."""


class SearchFailed(MPILearnError):
    """The search ran and cannot go on; what is in the store stays there."""
