"""Searches with more trials than points: what they say at the start and at the end."""

from __future__ import annotations

import pytest

import mpi_opt
from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.strategies.points.exhaustion import note_on_initial, note_on_points

ALL = "when every point has been tried"
AGAIN = "3 of 9 trials have repeated the point of an earlier one"
SPACE = Space({"opt": Categorical(("adam", "sgd")), "layers": Integer(1, 3)})
CONDITIONAL = Space({"opt": Categorical(("adam", "sgd")), "m": Integer(1, 3, when={"opt": "sgd"})})


@pytest.mark.parametrize(
    ("space", "strategy", "options", "n_trials", "note"),
    [
        (SPACE, "random", {}, 6, None),
        (
            SPACE,
            "random",
            {},
            7,
            "the space has 6 points, and the search 7 trials: when",
        ),
        (
            SPACE,
            "bayesian",
            {"constraints": ["layers < 3"]},
            5,
            "the space has 4 points",
        ),
        (SPACE, "bayesian", {"constraints": ["layers < 3"]}, 4, None),
        (CONDITIONAL, "random", {}, 5, "the space has 4 points"),
        (
            SPACE,
            "grid",
            {},
            7,
            "the space has 6 points, and the search 7 trials: it ends",
        ),
        (SPACE, "halving", {}, 50, None),
        (Space({"x": Real(0, 1)}), "random", {}, 50, None),
        (Space({"n": Integer(1, 10**9)}), "random", {}, 50, None),
        (SPACE, "mine.py:Mine", {"constraints": "of my own"}, 7, "the space has 6 points"),
    ],
)
def test_the_points_of_a_space_are_counted_up_to_the_number_of_trials(space, strategy, options, n_trials, note):
    found = note_on_points(space, strategy, options, n_trials)
    assert found is None if note is None else found.startswith(note)


@pytest.mark.parametrize(
    ("strategy", "options", "n_trials", "is_noted"),
    [
        ("auto", {}, 8, True),
        ("auto", {}, 9, False),
        ("bayesian", {"initial_points": 4}, 4, True),
        ("bayesian", {"initial_points": 4}, 5, False),
        ("random", {}, 5, False),
    ],
)
def test_it_is_noted_that_all_trials_are_proposed_before_the_first_model(strategy, options, n_trials, is_noted):
    assert bool(note_on_initial(SPACE, strategy, options, n_trials)) == is_noted


def test_a_study_that_has_nearly_ended_has_no_note_on_models():
    noted = [note_on_initial(SPACE, "auto", {}, 8, n_ended) is not None for n_ended in (0, 3, 4, 8)]
    assert noted == [True, True, False, False]
    assert "no trial of this search is proposed by a model" in note_on_initial(SPACE, "auto", {}, 8)


@pytest.mark.parametrize(
    ("strategy", "n_run", "notes"),
    [
        (
            "random",
            9,
            ["trials repeat points with other seeds", AGAIN],
        ),
        (
            "grid",
            6,
            [f"it ends {ALL}", "the strategy has no more points: 6 of 9 trials have run"],
        ),
    ],
)
def test_a_search_says_at_its_start_and_end_that_its_space_is_used_up(strategy, n_run, notes, capsys):
    study = mpi_opt.search(
        lambda trial: 1.0, space=dict(SPACE), trials=9, strategy=strategy, study="s", store="sqlite://", progress=True
    )
    assert len(study.trials) == n_run
    said = "".join(capsys.readouterr())
    for note in notes:
        assert said.count(note) == 1


def test_a_search_without_repetition_says_nothing(capsys):
    mpi_opt.search(
        lambda trial: 1.0, space=dict(SPACE), trials=6, strategy="random", study="s", store="sqlite://", progress=True
    )
    assert "point" not in "".join(capsys.readouterr())
