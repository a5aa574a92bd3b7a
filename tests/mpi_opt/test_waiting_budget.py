"""How many proposals may take the time of a model, from durations that are given, not measured."""

import pytest

from mpi_opt.coordinator.trials.waiting_budget import (
    CROWD,
    FIRST_GUESS_S,
    MAX_FREE_BLOCKS,
    MAX_WAITING,
    OWN_CREDIT_S,
    OWN_SHARE,
    PROMPT_S,
    SHARE,
    WaitingBudget,
)


def lost_part(n_blocks, trial_s, model_s, quick_s=0.0005, n_rounds=400):
    """The part of the blocks' time that is lost, and the part of the proposals that come from a model.

    In each round the blocks end one after the other, and one proposal is made for each.
    """
    budget, lost_s, n_modelled = WaitingBudget(), 0.0, 0
    for _ in range(n_rounds):
        budget.earn(trial_s)
        n_models = budget.n_models(1, n_blocks - 1)
        taken_s = model_s if n_models else quick_s
        budget.pay(taken_s, n_models, 1, n_blocks - 1)
        n_ending = min((n_blocks - 1) * taken_s / trial_s, n_blocks)
        lost_s += taken_s * (1 + n_ending / 2) * bool(n_models)
        n_modelled += n_models
    return lost_s / (n_rounds * trial_s), n_modelled / n_rounds


@pytest.mark.parametrize(("n_blocks", "trial_s"), [(64, 4.0), (256, 60.0), (1000, 600.0)])
def test_every_proposal_comes_from_a_model_if_trials_are_long(n_blocks, trial_s):
    lost, modelled = lost_part(n_blocks, trial_s, model_s=0.02)
    assert modelled == 1.0
    assert lost < SHARE


@pytest.mark.parametrize(("n_blocks", "trial_s"), [(1000, 1.0), (256, 0.5), (10_000, 10.0)])
def test_some_proposals_come_from_a_model_if_trials_are_short(n_blocks, trial_s):
    lost, modelled = lost_part(n_blocks, trial_s, model_s=0.05)
    assert 0.0 < modelled < 0.5
    assert lost < 1.2 * SHARE


def test_few_blocks_always_wait_whatever_the_trials_take():
    budget = WaitingBudget()
    budget.earn(1e-6)
    budget.pay(10.0, 1, 1, 3)
    assert budget.n_models(4, MAX_FREE_BLOCKS - 4) == 4
    assert budget.n_models(4, MAX_FREE_BLOCKS - 3) == 0


def test_many_blocks_do_not_wait_before_a_trial_has_ended():
    assert WaitingBudget().n_models(1000, 0) == 0


def test_a_part_of_the_idle_blocks_gets_a_model_if_all_would_cost_too_much():
    budget = WaitingBudget()
    for _ in range(64):
        budget.earn(10.0)
    assert 0 < budget.n_models(64, 0) < 64


def test_models_that_are_faster_than_expected_are_affordable():
    budget = WaitingBudget()
    for _ in range(64):
        budget.earn(10.0)
    for _ in range(20):
        budget.pay(0.0001, 1, 1, 63)
    assert budget.n_models(64, 0) == 64


def test_the_time_of_other_proposals_in_the_same_call_is_not_that_of_a_model():
    n_idle, model_s, other_s = 1000, 0.02, 0.002
    budget = WaitingBudget()
    for _ in range(n_idle):
        budget.earn(600.0)
    for _ in range(20):
        budget.pay(n_idle * other_s, 0, n_idle, 0)
    for _ in range(20):
        budget.pay(10 * model_s + (n_idle - 10) * other_s, 10, n_idle, 0)
    # with 9,000 s, 20 calls of 0.2 s for 1,000 blocks leave 5,000 s: enough for 250 models of 0.02 s
    assert 125 <= budget.n_models(n_idle, 0) <= 250


def test_a_clock_that_is_set_back_costs_nothing():
    budget, other = WaitingBudget(), WaitingBudget()
    for duration_s in (5.0, -1e9, 5.0):
        budget.earn(duration_s)
    for duration_s in (5.0, 0.0, 5.0):
        other.earn(duration_s)
    assert budget.n_models(3, 61) == other.n_models(3, 61)


def test_models_leave_most_of_the_time_of_rank_0_to_messages():
    n_blocks, trial_s, model_s = 10_000, 600.0, 0.05
    budget, modelled, n_trials = WaitingBudget(), [], 40_000
    for _ in range(n_trials):
        budget.earn(trial_s)
        n_models = budget.n_models(1, n_blocks - 1)
        budget.pay(model_s if n_models else 0.0005, n_models, 1, n_blocks - 1)
        modelled.append(n_models)
    assert sum(modelled[:500]) == 250  # a short search uses models for every other proposal
    late, passed_s = modelled[n_trials // 2 :], n_trials / 2 * trial_s / n_blocks
    assert sum(late) * model_s / passed_s == pytest.approx(OWN_SHARE, rel=0.05)


def ready_budget(n_blocks, trial_s):
    """A budget that affords a model to 3 idle blocks of `n_blocks`."""
    budget = WaitingBudget()
    for _ in range(n_blocks):
        budget.earn(trial_s)
    assert budget.n_models(3, n_blocks - 3) > 0
    return budget


def test_a_crowd_waits_for_few_models_at_once_and_not_for_two_in_a_row():
    budget, smaller = ready_budget(10_000, 600.0), ready_budget(CROWD, 60.0)
    assert budget.n_models(3, 9_997) * FIRST_GUESS_S <= PROMPT_S / 2
    budget.pay(0.02, 1, 1, 9_999)
    assert budget.n_models(1, 9_999) == 0
    budget.pay(0.0005, 0, 1, 9_999)
    assert budget.n_models(1, 9_999) == 1
    smaller.pay(0.02, 1, 3, CROWD - 3)
    assert smaller.n_models(3, CROWD - 3) == 3


def test_a_crowd_waits_for_no_model_while_rank_0_is_behind():
    budget = ready_budget(10_000, 600.0)
    assert budget.n_models(MAX_WAITING + 1, 9_999 - MAX_WAITING) == 0


def test_the_load_of_rank_0_by_other_proposals_counts():
    budget, busy = ready_budget(300, 1.0), ready_budget(300, 1.0)
    for _ in range(30):
        busy.pay(0.0018, 0, 1, 299)  # 300 trials a second, each of which takes 2.9 ms
    assert busy.n_models(64, 236) < budget.n_models(64, 236)


def test_models_let_few_messages_of_a_crowd_wait_long():
    n_blocks, trial_s, model_s, n_trials = 10_000, 600.0, 0.3, 40_000
    budget, n_late = ready_budget(n_blocks, trial_s), 0.0
    for _ in range(n_trials):
        budget.earn(trial_s)
        n_models = budget.n_models(1, n_blocks - 1)
        budget.pay(model_s if n_models else 0.0005, n_models, 1, n_blocks - 1)
        n_late += n_models * (model_s - PROMPT_S) * n_blocks / trial_s
    assert 0.003 * n_trials < n_late < 0.007 * n_trials


def test_a_crowd_with_trials_of_hours_waits_for_slow_models():
    n_blocks, trial_s, model_s, n_trials = 4_000, 3 * 3600.0, 0.4, 20_000
    budget, n_models = ready_budget(n_blocks, trial_s), 0
    for _ in range(n_trials):
        budget.earn(trial_s)
        budget.pay(model_s, n := budget.n_models(1, n_blocks - 1), 1, n_blocks - 1)
        n_models += n
    assert n_models > 0.4 * n_trials  # not two in a row


def test_one_long_pause_does_not_make_models_seem_too_slow_for_ever():
    budget, n_blocks, trial_s = WaitingBudget(), 32, 600.0
    budget.earn(trial_s)
    budget.n_models(1, n_blocks - 1)
    budget.pay(trial_s, 1, 1, n_blocks - 1)
    for _ in range(2000):
        budget.earn(trial_s)
        budget.pay(0.02, budget.n_models(1, n_blocks - 1), 1, n_blocks - 1)
    assert budget.n_models(1, n_blocks - 1) == 1


def test_a_host_that_was_suspended_does_not_end_the_use_of_models():
    budget, n_blocks, trial_s = WaitingBudget(), 100, 1.0
    budget.earn(trial_s)
    budget.n_models(1, n_blocks - 1)
    budget.pay(3600.0, 1, 1, n_blocks - 1)
    for _ in range(100):  # forget the time of that model
        budget.pay(0.02, 1, 1, n_blocks - 1)
    n_trials = 0
    while not budget.n_models(1, n_blocks - 1):
        budget.earn(trial_s)
        n_trials += 1
    assert n_trials * trial_s / n_blocks < 2 * OWN_CREDIT_S / OWN_SHARE
