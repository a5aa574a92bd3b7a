"""The text and the figure of ``mpi-opt plan``."""

from __future__ import annotations

import itertools
import re
import shlex
from functools import partial

import pytest

from mpi_learn.algorithms.configuration import AllReduce
from mpi_learn.algorithms.rank_layout import make_rank_layout, rank_layout_of
from mpi_opt.cli.main import run
from mpi_opt.core.block_layout import BlockLayout
from mpi_opt.views.text.rank_plan import ROLES, picture, plan_text, recommendation, slurm_script

SPACE = """
study: p
objective: train
direction: minimize
space: {lr: {type: real, low: 0.001, high: 0.1}, m: {type: integer, low: 1, high: 2}}
search: {trials: 20}
blocks: {size: 10, spares: 2}
folds: 2
training:
  model: model.py:build
  data: {file: data.h5}
  algorithm: {name: downpour, masters: 1, processes: 2, sync_every: $m}
"""


def drawn(layout: BlockLayout, trials: int = 1000, **options) -> str:
    return picture(layout, trials, lambda n: make_rank_layout(n, **options)).plain


def test_every_rank_is_one_letter_in_the_order_of_ranks():
    for n, size, folds, spares in ((2, 1, 1, 0), (5, 2, 3, 0), (38, 7, 2, 3), (257, 16, 4, 1)):
        layout = BlockLayout(n, size, folds, spares)
        lines = drawn(layout).split("\n\n")[0]
        letters = [letter for letter in lines if letter in ROLES]
        assert len(letters) == n
        assert letters[0] == "C"
        assert "".join(letters[n - spares :]) == "s" * spares


def test_masters_and_groups_of_workers_are_seen():
    assert "[Mw:w]" not in drawn(BlockLayout(5, 4), masters=1)
    assert "[Mwww]" in drawn(BlockLayout(5, 4), masters=1)
    assert "[Mww:ww|Mww:ww]" in drawn(BlockLayout(11, 10, n_folds=2), masters=1, processes=2)


def test_the_stages_of_a_model_are_numbered():
    drawn = picture(BlockLayout.of(18, 8, 2, 10, stages=2), 10, partial(rank_layout_of, AllReduce(), stages=2)).plain
    assert "C [12:12|12:12] [12:12|12:12] s" in drawn
    assert "1 a stage" in drawn


def test_blocks_without_a_trial_are_drawn_idle_and_counted():
    layout = BlockLayout(9, 2)
    assert "C [ww] [··] [··] [··]" in drawn(layout, trials=1)
    assert "6 of 8 ranks would be idle" in recommendation(layout, 1)
    assert not recommendation(layout, 4)


@pytest.mark.parametrize("width", [20, 44, 100])
def test_no_line_of_the_picture_is_wider_than_the_terminal(width):
    text = picture(BlockLayout(300, 60, n_folds=4), 100, make_rank_layout, width).plain.split("\n\n")[0]
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_very_large_job_is_drawn_in_part():
    text = drawn(BlockLayout(10_001, 10))
    assert "…" in text
    assert len(text) < 5000
    assert "1000 blocks of 10 ranks" in plan_text(BlockLayout(10_001, 10), 10_000)


def test_the_block_size_that_a_note_recommends_gives_no_note():
    assert "--block-size 3 " in recommendation(BlockLayout(10, 2), 100)
    assert not recommendation(BlockLayout(10, 3), 100)


@pytest.mark.parametrize(
    ("n", "size", "folds", "note"),
    [
        (1, 1, 3, "a block of 1 takes its 3 folds in turn; -n 4 --block-size 3 runs them at once"),
        (3, 2, 3, "a block of 2 takes its 3 folds in turn; -n 4 --block-size 3 runs them at once"),
        (10, 2, 4, "a block of 3 takes its 4 folds in turn; --block-size 4 runs them at once"),
        (5, 4, 3, "folds get unequal numbers of ranks; -n 7 --block-size 3 makes them equal"),
        (10, 4, 3, "folds get unequal numbers of ranks; --block-size 3 makes them equal"),
    ],
)
def test_a_note_recommends_more_ranks_if_there_are_too_few(n, size, folds, note):
    assert recommendation(BlockLayout(n, size, folds), 100) == note


@pytest.mark.parametrize(
    ("n", "size", "folds", "trials", "note"),
    [
        (6, 2, 2, 1, "2 of 5 ranks would be idle, because there is only 1 trial; --block-size auto, or 5, uses them"),
        (6, 2, 2, 2, "folds get unequal numbers of ranks; -n 7 --block-size 2 makes them equal"),
        (6, 2, 1, 2, "blocks differ in size; --block-size 1 makes them all equal"),
    ],
)
def test_at_most_one_note_recommends_a_block_size(n, size, folds, trials, note):
    assert recommendation(BlockLayout(n, size, folds), trials) == note


def test_note_says_that_a_strategy_would_learn_from_nothing():
    """With -n 9, eight blocks start all eight trials before one of them has ended."""
    note = recommendation(BlockLayout(9, 1), 8, learns=True)
    assert note.startswith("all 8 trials start at once, so that the strategy learns from none of them; --block-size 4")
    assert not recommendation(BlockLayout(9, 1), 8)  # random points need no results
    assert not recommendation(BlockLayout(9, 1), 9, learns=True)
    assert not recommendation(BlockLayout(9, 4), 8, learns=True)
    for n, trials in itertools.product(range(3, 40), range(2, 12)):
        note = recommendation(BlockLayout(n, 1), trials, learns=True)
        if "learns from none" in note:
            size, in_turn = map(int, re.search(r"--block-size (\d+) runs about (\d+) one", note).groups())
            n_blocks = len(BlockLayout(n, size).blocks)
            assert in_turn == -(-trials // n_blocks) > 1, (n, trials, note)


@pytest.mark.parametrize(("strategy", "has_note"), [("bayesian", True), ("random", False)])
def test_plan_names_what_a_strategy_cannot_learn(tmp_path, capsys, strategy, has_note):
    space = tmp_path / "space.yaml"
    search = f"search: {{strategy: {strategy}, trials: 8}}"
    space.write_text(f"objective: a.py:f\nspace: {{x: {{type: real, low: 0, high: 1}}}}\n{search}\n")
    (tmp_path / "a.py").write_text("def f(trial): return 0.0\n")
    assert run(["plan", str(space), "-n", "9"]) == 0
    assert ("all 8 trials start at once" in capsys.readouterr().out) == has_note


def test_folds_that_must_run_in_turn_to_be_stopped_early_are_no_reason_for_a_note():
    assert recommendation(BlockLayout(5, 1, 3), 100)
    assert not recommendation(BlockLayout(5, 1, 3), 100, stop_early=True)


@pytest.mark.parametrize("stop_early", [False, True])
def test_every_recommendation_of_a_note_is_possible_and_removes_its_cause(stop_early):
    for n, size, folds, spares in itertools.product(range(1, 16), range(1, 8), range(1, 6), (0, 2)):
        if 0 < n - 1 <= spares:
            continue  # spare ranks alone
        layout = BlockLayout(n, size, folds, spares if n > 1 else 0)
        if note := recommendation(layout, 100, stop_early):
            options = {option: int(value) for option, value in re.findall(r"(-n|--block-size) (\d+)", note)}
            n_better, size_better = options.get("-n", n), options["--block-size"]
            assert size_better <= n_better - 1 - layout.spares, (layout, note)
            after = recommendation(BlockLayout(n_better, size_better, folds, layout.spares), 100, stop_early)
            assert kind_of(after) != kind_of(note), (layout, note)


def kind_of(note: str) -> str:
    """The problem that a note describes, without numbers."""
    return re.sub(r"\d+", "", note.partition(";")[0])


def test_plan_of_a_file_knows_its_algorithm(tmp_path, capsys):
    (tmp_path / "space.yaml").write_text(SPACE)
    assert run(["plan", str(tmp_path / "space.yaml"), "-n", "23"]) == 0
    printed = capsys.readouterr().out
    assert "C [Mww:ww|Mww:ww] [Mww:ww|Mww:ww] ss" in printed
    assert "note:" not in printed


def test_batch_script_keeps_all_options_and_quotes_the_path(tmp_path, capsys):
    folder = tmp_path / "Ada's studies"
    folder.mkdir()
    (folder / "p 1.yaml").write_text(SPACE)
    options = ["--trials", "30", "--strategy", "random", "--block-size", "4", "--folds", "3", "--seed", "5"]
    options += ["--study", "a b", "--store", "sqlite:///a b.db", "--time-limit", "2h"]
    assert run(["plan", str(folder / "p 1.yaml"), "-n", "9", "--slurm", *options]) == 0
    script = capsys.readouterr().out
    command = shlex.split(script.strip().splitlines()[-1])
    after = command[command.index("search") + 1 :]
    assert after == [str(folder / "p 1.yaml"), *options, "-n", "9", "--restarts", "10"]
    assert run(["plan", str(folder / "p 1.yaml"), "-n", "9", "--slurm"]) == 0
    command = shlex.split(capsys.readouterr().out.strip().splitlines()[-1])
    assert command[command.index("search") + 1 :] == [str(folder / "p 1.yaml"), "-n", "9", "--restarts", "10"]


def test_batch_script_lets_slurm_choose_the_nodes_and_passes_signals_and_status_on():
    *lines, command = slurm_script("space.yaml", 129).strip().splitlines()
    given = [line.removeprefix("#SBATCH --").partition("=") for line in lines if line.startswith("#SBATCH")]
    options = {name: value for name, _, value in given}
    assert options["ntasks"] == "129"
    assert not {"nodes", "ntasks-per-node"} & set(options)
    assert options["open-mode"] == "append"  # Slurm truncates the output of a requeued job otherwise
    assert "no-kill" in options  # the job continues without a node that is lost
    assert "requeue" in options  # a lost node with the batch script; some clusters have JobRequeue=0
    assert command == "exec mpi-opt search space.yaml -n 129 --restarts 10"


def test_plan_of_measured_blocks_says_that_their_size_is_not_known(tmp_path, capsys):
    (tmp_path / "space.yaml").write_text(SPACE.replace("size: 10", "size: measured"))
    assert run(["plan", str(tmp_path / "space.yaml"), "-n", "23"]) == 0
    assert "the search first measures which size is best" in capsys.readouterr().out
