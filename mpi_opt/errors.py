"""The errors of a search, and those of `mpi_learn` that MPI Opt uses.

MPILearnError
├── UserError                  invalid input: one message, no traceback, exit status 2
│   ├── ConfigurationError         a key of the file, or an argument
│   │   └── SpaceError                 the search space is inconsistent, or a value is not in it
│   └── StoreError                 the database cannot be opened, read or written
└── SearchFailed               the search failed while it ran; exit status 1
    ├── RanksLost                  no rank is left that could run a trial; exit status 75
    └── HostFailed                 no trial can run because of a full disk or another fault of hosts; exit status 75
"""

from __future__ import annotations

from mpi_learn.errors import ConfigurationError, MPILearnError, UserError, shortened, without_passwords

__all__ = [
    "ConfigurationError",
    "HostFailed",
    "MPILearnError",
    "RanksLost",
    "SearchFailed",
    "SpaceError",
    "StoreError",
    "UserError",
    "shortened",
    "without_passwords",
]


class SpaceError(ConfigurationError):
    """The search space is inconsistent, or a value is not in it."""


class StoreError(UserError):
    """The database cannot be opened, read or written."""


class SearchFailed(MPILearnError):
    """The search failed while it ran. The trials in the store are kept."""


class RanksLost(SearchFailed):
    """No rank is left that could run a trial. The same command continues the study."""

    exit_status = 75
    is_temporary = True


class HostFailed(SearchFailed):
    """No trial can run because of a fault of hosts or servers. The same command continues the study."""

    exit_status = 75
    is_temporary = True
