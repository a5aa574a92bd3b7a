"""The strategy minimises: with ``direction: maximize`` it sees everything with the other sign, reports included."""

import pytest

from mpi_opt import Real, search

RECORDER = """
from mpi_opt.strategies import Decision, Strategy
from mpi_opt.core.trial import Proposal

SEEN = {"told": [], "reported": []}

class Recorder(Strategy):
    def __init__(self, space, seed, options):
        self.number = -1
    def ask(self, count):
        self.number += 1
        return [Proposal(self.number, {"x": 0.5})]
    def tell(self, proposal, outcome):
        SEEN["told"].append(outcome)
    def resume(self, observed, pending=()):
        pass
    def report(self, proposal, step, value):
        SEEN["reported"].append((step, value))
        return Decision.STOP if step == 1 else Decision.CONTINUE
"""


def accuracy(trial):
    for step in range(5):
        trial.report(step, 0.25 + step)
        if trial.should_stop():
            break
    return 0.75


@pytest.mark.parametrize(("direction", "sign"), [("minimize", 1.0), ("maximize", -1.0)])
def test_reports_and_outcomes_have_the_sign_that_is_minimized(direction, sign, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"recorder_{direction}.py"
    path.write_text(RECORDER)
    study = search(
        accuracy,
        space={"x": Real(0, 1)},
        trials=1,
        strategy=f"{path}:Recorder",
        direction=direction,
        store=f"sqlite:///{tmp_path}/a.db",
    )
    from mpi_learn.settings.user_code import load_function

    seen = load_function(f"{path}:Recorder").ask.__globals__["SEEN"]
    assert seen["reported"] == [(0, sign * 0.25), (1, sign * 1.25)]
    assert [float(cost) for cost in seen["told"]] == [sign * 0.75]
    assert study.trials[0].state == "pruned"
