"""The rules that every algorithm follows, with each kind of its options."""

import sys

from mpi_learn.algorithms.make_algorithm import ALGORITHMS as BUILDERS
from mpi_learn.testing import AlgorithmTests

LOW_RANK = {"name": "allreduce", "compression": "power-sgd", "matrix_rank": 2}
N_STEPS = 4


class TestAllReduce(AlgorithmTests):
    sections = {
        "allreduce": {"name": "allreduce"},
        "allreduce accumulated": {"name": "allreduce", "accumulate": 3},
        "allreduce accumulated evenly": {"name": "allreduce", "accumulate": 2},
        "allreduce in 16 bits": {"name": "allreduce", "compression": "float16"},
        "allreduce in 2 bits": {"name": "allreduce", "compression": "2-bit"},
        "allreduce of the largest": {"name": "allreduce", "compression": "top-k", "fraction": 0.1},
        "allreduce of low rank": LOW_RANK,
        "allreduce of low rank after exact steps": LOW_RANK | {"exact_steps": N_STEPS + 2},
    }


class TestDownpour(AlgorithmTests):
    sections = {
        "downpour": {"name": "downpour"},
        "downpour every 3": {"name": "downpour", "sync_every": 3},
        "downpour tree in 8 bits": {"name": "downpour", "masters": 2, "compression": "int8"},
        "quorum of half": {"name": "downpour", "synchronous": True, "quorum": 0.5},
        "downpour in groups": {"name": "downpour", "processes": 2},
        "two downpour masters": {"name": "downpour", "masters": 2},
        "tree of groups": {"name": "downpour", "masters": 2, "processes": 2},
    }
    is_reproducible = False


class TestSynchronousDownpour(AlgorithmTests):
    sections = {
        "synchronous": {"name": "downpour", "synchronous": True},
        "synchronous in groups": {"name": "downpour", "processes": 2, "synchronous": True},
        "synchronous tree": {"name": "downpour", "masters": 3, "synchronous": True},
    }
    is_reproducible = False  # sums depend on the order in which messages arrive


class TestEasgd(AlgorithmTests):
    sections = {
        "easgd": {"name": "easgd"},
        "easgd in groups": {"name": "easgd", "processes": 2},
        "easgd tree": {"name": "easgd", "masters": 3},
        "easgd tree in 2 bits": {"name": "easgd", "masters": 3, "compression": "2-bit"},
    }
    is_reproducible = False


class TestGem(AlgorithmTests):
    sections = {
        "gem": {"name": "gem"},
        "gem every 3": {"name": "gem", "sync_every": 3},
        "gem in groups": {"name": "gem", "processes": 2, "sync_every": 3},
        "gem tree": {"name": "gem", "masters": 3},
        "gem in 8 bits": {"name": "gem", "compression": "int8"},
    }
    is_reproducible = False
    learning_rate = 0.01


class TestClusters(AlgorithmTests):
    sections = {
        "clusters in a ring": {"name": "clusters", "size": 2, "exchange_every": 1, "neighbours": "ring"},
        "clusters in pairs": {"name": "clusters", "size": 2, "exchange_every": 1, "neighbours": "random"},
        "clusters of one": {"name": "clusters", "size": 1, "exchange_every": 2, "neighbours": "all"},
        "clusters in pairs in 2 bits": {"name": "clusters", "size": 2, "exchange_every": 1, "compression": "2-bit"},
        "two clusters": {"name": "clusters", "size": 3, "exchange_every": 2, "outer": {"name": "nesterov"}},
    }
    is_reproducible = False  # an exchange is applied when it has arrived


SUITES = [suite for suite in vars(sys.modules[__name__]).values() if getattr(suite, "sections", None)]
ALGORITHMS = {name: section for suite in SUITES for name, section in suite.sections.items()}


def test_every_algorithm_has_its_suite():
    assert {section["name"] for section in ALGORITHMS.values()} == set(BUILDERS)
