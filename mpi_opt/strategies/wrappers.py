"""Wrappers of strategies: searches that survive an exception inside of theirs, and reproducible searches.

A reproducible search has the same trials in parallel, regardless of timing: its strategy receives outcomes in the
order of the trial numbers and with a fixed lag, so that the order in which trials end has no influence. The option
``reproducible: true`` of any strategy applies it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar, final

from mpi_opt.core.search_space.space import Limits, Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError, MPILearnError
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, Options, proposals_up_to, reported_twice
from mpi_opt.strategies.points.checks import observed_cost, whole_number
from mpi_opt.strategies.points.sampling import Sampler
from mpi_opt.strategies.strategy import Cost, Decision, Strategy

N_FRAMES = 5
"""Number of the innermost calls in the description of a problem."""

MAX_CHARACTERS = 200
"""Largest length of the message of an exception in a description."""


@final
class Problems:
    """The problems of a strategy. Each is taken once, however often it occurs."""

    def __init__(self) -> None:
        self._new: list[str] = []
        self._known: set[tuple[str, type[Exception]]] = set()

    def add(self, what: str, error: Exception, consequence: str) -> None:
        """Adds a problem: what raised `error`, and what the strategy does instead."""
        if (what, type(error)) not in self._known:
            self._known.add((what, type(error)))
            first_line, _, calls = described(what, error).partition("\n")
            self._new.append(f"{first_line}; {consequence}\n{calls}")

    def take(self) -> list[str]:
        """The problems since the last call."""
        taken, self._new = self._new, []
        return taken


def described(what: str, error: Exception) -> str:
    """``WHAT raised ValueError: no (file.py:17)``, and on further lines the innermost calls."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    try:
        message = str(error).partition("\n")[0][:MAX_CHARACTERS]
    except Exception:  # noqa: BLE001 - the __str__ of a user's exception may raise anything
        message = "(its text cannot be read)"
    reason = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"{what} raised {reason}{place}\n{''.join(traceback.format_list(frames[-N_FRAMES:])).rstrip()}"


T = TypeVar("T")


@final
class Guarded(Strategy):
    """A strategy whose exceptions do not reach the caller, except those that this project raises on purpose.

    After an exception the strategy is dropped, because its state may be inconsistent, and the next proposals are
    random. Once one more outcome has arrived, a new strategy continues from all trials. If that fails as well, it is
    constructed again after two more outcomes, then after four, and so on, so that this takes little time.

    Args:
        name: The name of the strategy, for messages.
        make: Constructs the strategy, which expects `n_figures` costs.
        space: The search space.
        seed: The seed of the random points.
        constraints: The constraints of the random points.
        n_figures: Number of figures of merit.
        fails_at_start: Whether an exception before the first proposal is an error, as in a strategy of the user.

    Raises:
        ConfigurationError: With `fails_at_start`; also by the methods.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Strategy],
        space: Space,
        seed: int,
        constraints: Sequence[str] = (),
        *,
        n_figures: int = 1,
        fails_at_start: bool = False,
    ) -> None:
        self._name, self._make, self._space, self._seed = name, make, space, seed
        self._constraints, self._fails_at_start = tuple(constraints), fails_at_start
        self._n_figures = n_figures
        self._observed: list[tuple[Proposal, Cost | Failed]] = []
        self._pending: dict[int, Proposal] = {}
        self._problems = Problems()
        self._strategy: Strategy | None = None
        self._random: tuple[Bookkeeping, Sampler] | None = None  # while there is no strategy
        self._n_made = self._n_retry = 0  # numbers of outcomes at which the strategy was made, and will be made again
        self._gap = 1
        self._steering: tuple[Sequence[Parameters], Limits] | None = None
        self._strategy = self._made()

    def expect(self, n_figures: int) -> None:
        make, self._n_figures = self._make, n_figures

        def expecting() -> Strategy:
            made = make()
            made.expect(n_figures)
            return made

        self._make = expecting
        self._try("expect", lambda strategy: strategy.expect(n_figures), None)

    def ask(self, count: int) -> list[Proposal]:
        """The proposals of the strategy, or random ones."""
        if self._strategy is None and len(self._observed) >= self._n_retry:
            self._make_again()
        proposals = self._try("ask", lambda strategy: strategy.ask(count), None)
        if proposals is None:
            bookkeeping, sampler = self._random_points()
            proposals = bookkeeping.ask(count, lambda: sampler.new_point(bookkeeping))
        self._fails_at_start = self._fails_at_start and not proposals
        self._pending |= {proposal.number: proposal for proposal in proposals}
        return proposals

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        self._try("tell", lambda strategy: strategy.tell(proposal, outcome), None)
        self._pending.pop(proposal.number, None)
        self._observed.append((proposal, outcome))
        if self._random is not None:
            self._random[0].observe(proposal, outcome)

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        self._observed, self._pending = list(observed), {proposal.number: proposal for proposal in pending}
        self._n_made = len(self._observed)
        self._try("resume", lambda strategy: strategy.resume(self._observed, self._pending.values()), None)

    def steer(self, points: Sequence[Parameters], limits: Limits) -> None:
        """As `Strategy.steer`. Random points in place of the strategy follow hints as well."""
        self._steering = None  # for a strategy that cannot follow hints
        self._try("steer", lambda strategy: strategy.steer(points, limits), None)
        self._steering = points, limits
        if self._random is not None:
            self._random[0].steer(self._untried(points), limits)

    def afford(self, n_models: float) -> None:
        self._try("afford", lambda strategy: strategy.afford(n_models), None)

    def report(self, proposal: Proposal, step: int, value: float) -> Decision:
        return self._try("report", lambda strategy: strategy.report(proposal, step, value), Decision.CONTINUE)

    def obsolete(self) -> list[int]:
        return self._try("obsolete", lambda strategy: strategy.obsolete(), [])

    def problems(self) -> list[str]:
        none: list[str] = []
        return self._problems.take() + self._try("problems", lambda strategy: strategy.problems(), none)

    @property
    def choice(self) -> str:
        return self._try("choice", lambda strategy: strategy.choice, "")

    @property
    def finished(self) -> bool:
        return self._try("finished", lambda strategy: strategy.finished, False)

    @property
    def waits(self) -> bool:
        return self._try("waits", lambda strategy: strategy.waits, False)

    def _make_again(self) -> None:
        """Constructs the strategy again and passes all trials to it."""
        self._strategy = self._made()
        self.resume(self._observed, self._pending.values())
        if self._strategy is not None:
            self._random = None
            self._steer_again()

    def _steer_again(self) -> None:
        """Passes the last hints to a new strategy, without the points that have trials."""
        if self._steering is None:
            return
        points, limits = self._steering
        try:
            self.steer(self._untried(points), limits)
        except ConfigurationError as error:  # this may be the first strategy that sees them
            self._problems.add(f"{self._name}: steer", error, "the hint is ignored")

    def _untried(self, points: Sequence[Parameters]) -> list[Parameters]:
        tried = [proposal.parameters for proposal, _ in self._observed]
        tried += [proposal.parameters for proposal in self._pending.values()]
        return [point for point in points if point not in tried]

    def _try(self, method: str, call: Callable[[Strategy], T], default: T) -> T:
        """`call` of the strategy; `default` if there is none or if it raises."""
        if (strategy := self._strategy) is None:
            return default
        try:
            return call(strategy)
        except MPILearnError:  # invalid options, constraints that no point satisfies, invalid proposals of the user
            raise
        except Exception as error:  # noqa: BLE001 - also in the code of the user
            self._drop(method, error)
            return default

    def _made(self) -> Strategy | None:
        """A new strategy; None if its constructor raises."""
        try:
            return self._make()
        except MPILearnError:
            raise
        except Exception as error:  # noqa: BLE001
            self._drop("__init__", error)
            return None

    def _drop(self, method: str, error: Exception) -> None:
        """Drops the strategy, whose `method` has raised `error`, and determines when it is made again.

        Raises:
            ConfigurationError: It has not made a proposal yet.
        """
        if self._fails_at_start:
            first_line = described(f"{self._name}: {method}", error).partition("\n")[0]
            cure = "correct the strategy; --debug shows the traceback"
            raise ConfigurationError(first_line, where="search.strategy", cure=cure) from error
        self._problems.add(f"{self._name}: {method}", error, "the next points are random")
        n = len(self._observed)
        self._gap = 1 if n - self._n_made > 2 * self._gap else self._gap
        self._n_retry, self._gap = n + self._gap, 2 * self._gap
        self._strategy = None

    def _random_points(self) -> tuple[Bookkeeping, Sampler]:
        if self._random is None:
            bookkeeping = Bookkeeping(self._space, Options(constraints=self._constraints), remembers_points=True)
            bookkeeping.expect(self._n_figures)
            for proposal, outcome in self._observed:
                bookkeeping.observe(proposal, outcome)
            for proposal in self._pending.values():
                bookkeeping.add_pending(proposal)
            if self._steering is not None:
                points, limits = self._steering
                bookkeeping.steer(self._untried(points), limits)
            self._random = bookkeeping, Sampler(self._space, self._seed)
        return self._random


@final
class Reproducible(Strategy):
    """Proposal k depends on the outcomes of trials 0 to k - lag, observed in the order of their numbers.

    At most `lag` trials are in flight, and each proposal is based on slightly less information. While the wrapped
    strategy waits for outcomes, it receives as many as it needs, in order. Only trials that the strategy proposed can
    be reported. Intermediate values are ignored, because their arrival depends on timing.

    Args:
        make: Constructs the wrapped strategy, which numbers its proposals from 0 and is deterministic.
        lag: At least the number of blocks, so that no block waits.
        n_figures: Number of figures of merit.
    """

    def __init__(self, make: Callable[[], Strategy], lag: int, n_figures: int = 1) -> None:
        self._make, self._strategy, self._lag, self._n_figures = make, make(), lag, n_figures
        self._proposals: dict[int, Proposal] = {}
        self._outcomes: dict[int, Cost | Failed] = {}
        self._n_asked = self._n_learnt = 0

    def ask(self, count: int) -> list[Proposal]:
        """Up to `count` proposals; fewer if an outcome is missing on which the next proposal depends."""
        return proposals_up_to(count, self._proposal)

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Keeps the outcome until all trials with smaller numbers have been observed.

        Raises:
            ConfigurationError: As for every strategy, or this strategy did not propose the trial.
        """
        number = whole_number(proposal.number, "tell: number of the trial")
        if number in self._outcomes or number < self._n_learnt:
            raise reported_twice(number)
        if self._proposals.get(number) != proposal:
            raise ConfigurationError(
                f"trial {number} was not proposed by this strategy",
                where="tell",
                cure="report its own proposals only, or search without `reproducible: true`",
            )
        observed_cost(proposal, outcome, self._n_figures)
        self._outcomes[number] = outcome

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Continues as if this strategy had proposed all of the trials."""
        for proposal, outcome in observed:
            self._remember(proposal)
            self.tell(proposal, outcome)
        for proposal in pending:
            self._remember(proposal)
        n_learnt = max(self._n_asked - self._lag, 0)
        if self._strategy.waits:
            n_learnt = max(n_learnt, self._n_learnt_by_replay())
        # with a smaller lag than before, a trial that still runs may have a number below n_asked - lag
        n_learnt = next((number for number in range(n_learnt) if number not in self._outcomes), n_learnt)
        learnt = [number for number in sorted(self._proposals) if number < n_learnt and number in self._outcomes]
        others = [self._proposals[number] for number in sorted(set(self._proposals) - set(learnt))]
        self._strategy.resume([(self._proposals[number], self._outcomes.pop(number)) for number in learnt], others)
        self._n_learnt = n_learnt

    def obsolete(self) -> list[int]:
        return self._strategy.obsolete()

    def problems(self) -> list[str]:
        return self._strategy.problems()

    @property
    def choice(self) -> str:
        return self._strategy.choice

    @property
    def finished(self) -> bool:
        return self._strategy.finished

    def _proposal(self) -> Proposal | None:
        """The next proposal; None if an outcome is missing on which it depends."""
        if not self._learn_until(self._n_asked - self._lag):
            return None
        while not (asked := self._strategy.ask(1)):
            if not self._learn_until(self._n_learnt):
                return None
        self._remember(asked[0])
        return asked[0]

    def _n_learnt_by_replay(self) -> int:
        """Number of outcomes that a strategy that waits had observed, found by repeating its proposals."""
        twin = Reproducible(self._make, self._lag, self._n_figures)
        twin._outcomes = dict(self._outcomes)
        while twin._n_asked < self._n_asked and twin.ask(1):
            pass
        return twin._n_learnt

    def _remember(self, proposal: Proposal) -> None:
        self._proposals[proposal.number] = proposal
        self._n_asked = max(self._n_asked, proposal.number + 1)

    def _learn_until(self, last: int) -> bool:
        """Passes on the outcomes up to that of trial `last` in order; returns False if one of them is missing."""
        while self._n_learnt <= last:
            if self._n_learnt not in self._outcomes:
                return False
            self._strategy.tell(self._proposals.pop(self._n_learnt), self._outcomes.pop(self._n_learnt))
            self._n_learnt += 1
        return True
