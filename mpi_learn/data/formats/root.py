"""ROOT files: trees (TTree) and tuples (RNTuple), read with uproot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mpi_learn.data.formats.source import Description, Jagged, Source
from mpi_learn.settings.optional_packages import imported

TREES = ("TTree", "ROOT::RNTuple")
N_TYPED = 1
"""The number of entries that are read to determine the type of a branch."""


class ROOT(Source):
    """The branches of the tree of a ROOT file, named ``tree/branch`` if there are several trees.

    A branch of a split object is named as in ROOT, ``Jet/Jet.PT``.
    """

    format: ClassVar[str] = "ROOT"
    is_table: ClassVar[bool] = True

    def names(self) -> list[str]:
        return list(self._places)

    def describe(self, names: Sequence[str]) -> dict[str, Description]:
        return {name: self._description(name) for name in names}

    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray | Jagged]:
        return {name: _as_numpy(self._branch(name).array(entry_start=start, entry_stop=stop)) for name in names}

    def close(self) -> None:
        vars(self).pop("_trees", None)
        if (file := vars(self).pop("_file", None)) is not None:
            file.close()

    def n_together(self, names: Sequence[str]) -> int:
        """The length of the longest basket, or of the longest cluster of an RNTuple."""
        lengths = [1]
        for name in names:
            branch, tree = self._branch(name), self._tree(name)
            if tree.classname == TREES[0]:
                lengths += np.diff(getattr(branch, "entry_offsets", [0])).tolist()
            else:
                lengths += [cluster.num_entries for cluster in tree.cluster_summaries]
        return max(lengths)

    def _description(self, name: str) -> Description:
        branch, n_samples = self._branch(name), self._tree(name).num_entries
        if isinstance(getattr(branch, "interpretation", None), Exception):  # uproot does not know its type in C++
            return Description(n_samples, (), np.dtype(object))
        return _described(branch.array(entry_stop=N_TYPED), n_samples)

    @cached_property
    def _places(self) -> dict[str, tuple[str, str]]:
        """Name -> tree and branch."""
        return {
            branch if len(self._trees) == 1 else f"{name}/{branch}": (name, branch)
            for name, tree in self._trees.items()
            for branch in tree.keys(recursive=tree.classname == TREES[0])
        }

    @cached_property
    def _trees(self) -> dict[str, Any]:
        return {name: self._file[name] for name in self._file.keys(cycle=False, filter_classname=TREES)}

    @cached_property
    def _file(self) -> Any:
        return imported("uproot", "root").open(self.path)

    def _tree(self, name: str) -> Any:
        return self._trees[self._places[name][0]]

    def _branch(self, name: str) -> Any:
        return self._tree(name)[self._places[name][1]]


def _described(array: Any, n_samples: int) -> Description:
    """The description of an awkward array, from its type."""
    types = imported("awkward", "root").types
    kind, shape = array.type.content, []
    while isinstance(kind, types.RegularType):
        shape.append(kind.size)
        kind = kind.content
    is_jagged = _is_jagged(kind)
    if is_jagged:
        kind = kind.content
    dtype = np.dtype(kind.primitive if isinstance(kind, types.NumpyType) else object)
    return Description(n_samples, tuple(shape), dtype, is_jagged)


def _is_jagged(kind: Any) -> bool:
    """Whether an awkward type is a list of variable length. Text is a list in awkward and excluded here."""
    return isinstance(kind, imported("awkward", "root").types.ListType) and "__array__" not in kind.parameters


def _as_numpy(array: Any) -> np.ndarray | Jagged:
    awkward = imported("awkward", "root")
    if _is_jagged(array.type.content):
        return Jagged(awkward.to_numpy(awkward.flatten(array)), awkward.to_numpy(awkward.num(array)))
    return np.asarray(awkward.to_numpy(array))
