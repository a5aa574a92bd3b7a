import subprocess
import sys
import time
from contextlib import nullcontext

import pytest
import scipy

from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import STRATEGIES, Strategy, make_strategy, strategy_class
from mpi_opt.strategies.make_strategy import load_library

OWN = """
from mpi_opt.strategies.designs.random_search import RandomSearch
from mpi_opt.strategies import Strategy
from mpi_opt.core.trial import Proposal

class Fixed(Strategy):
    def __init__(self, space, seed, options):
        self.number, self.value = -1, options["value"]
    def ask(self, count):
        self.number += 1
        return [Proposal(self.number, {"x": self.value})]
    def tell(self, proposal, outcome): pass
    def resume(self, told, pending=()): pass

class NoStrategy:
    def __init__(self, space, seed, options): pass
"""


def test_every_name_gives_a_strategy():
    for name in STRATEGIES:
        made = make_strategy(name, {"x": Real(0, 1)}, seed=1)
        assert isinstance(made, strategy_class(name))
        assert isinstance(made, Strategy)


def test_the_classes_of_strategies_need_no_options():
    space = Space({"x": Real(0, 1)})
    for name in STRATEGIES:
        first, same = (strategy_class(name)(space, **given) for given in ({"seed": 1}, {"seed": 1, "options": {}}))
        assert [one.parameters for one in first.ask(3)] == [one.parameters for one in same.ask(3)]


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigurationError, match="did you mean bayesian"):
        make_strategy("bayes", {"x": Real(0, 1)})


@pytest.mark.parametrize(
    ("name", "options"), [("halving", {"max_budget": float("inf")}), ("bayesian", {"kappa": float("nan")})]
)
def test_options_that_are_no_finite_numbers_are_refused(name, options):
    with pytest.raises(ConfigurationError, match="expected a finite number"):
        make_strategy(name, {"x": Real(0, 1)}, options=options)


def test_options_of_a_reproducible_search_are_suggested():
    with pytest.raises(ConfigurationError) as raised:
        make_strategy("random", {"x": Real(0, 1)}, options={"reproducable": True})
    assert raised.value.cure == "did you mean reproducible? known keys: initial, constraints, reproducible, lag"
    with pytest.raises(ConfigurationError, match="an effect only in a reproducible search"):
        make_strategy("random", {"x": Real(0, 1)}, options={"lag": 3})


def test_users_own_class_is_loaded_from_its_file(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    strategy = make_strategy(f"{tmp_path}/own.py:Fixed", {"x": Real(0, 1)}, options={"value": 0.25})
    assert strategy.ask(1)[0].parameters == {"x": 0.25}
    with pytest.raises(ConfigurationError, match="not a strategy"):
        make_strategy(f"{tmp_path}/own.py:NoStrategy", {"x": Real(0, 1)})


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"scikit-optimize"}))  # whose module imports its library
def test_a_strategy_needs_scipy_only_for_proposals_and_can_load_it_before(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    monkeypatch.delattr(scipy, "stats", raising=False)
    strategy = make_strategy(name, {"x": Real(0, 1)}, seed=1)
    try:
        strategy.ask(1)
        needs_scipy = bool(strategy.problems())  # of `halving`, which continues with random points
    except ImportError:
        needs_scipy = True
    with pytest.raises(ImportError) if needs_scipy else nullcontext():
        load_library(name)


def test_listing_strategies_imports_no_heavy_library():
    code = (
        "import sys\n"
        "from mpi_opt.core.search_space.space import Real\n"
        "from mpi_opt.strategies import make_strategy\n"
        "make_strategy('random', {'x': Real(0, 1)}).ask(1)\n"
        "print([m for m in ('skopt', 'sklearn', 'scipy', 'mpi4py') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == "[]"


def test_random_search_takes_microseconds():
    """5,000 trials a second pass through rank 0: 200 µs a trial for everything. Ten times the usual is allowed here."""
    space = {
        "a": Real(0, 1),
        "b": Real(1e-4, 1, prior="log-uniform"),
        "c": Integer(1, 64),
        "d": Integer(16, 256, step=16),
        "e": Categorical(("x", "y", "z")),
        "f": Real(0, 1),
    }
    strategy = make_strategy("random", space, seed=7)
    started = time.perf_counter()
    for _ in range(2000):
        (proposal,) = strategy.ask(1)
        strategy.tell(proposal, 1.0)
    assert (time.perf_counter() - started) / 2000 < 100e-6


def test_point_k_of_random_search_depends_only_on_seed_and_k():
    space = {"x": Real(0, 1), "n": Integer(0, 1000)}
    one_by_one, together = make_strategy("random", space, seed=3), make_strategy("random", space, seed=3)
    assert [one_by_one.ask(1)[0] for _ in range(300)] == together.ask(300)
