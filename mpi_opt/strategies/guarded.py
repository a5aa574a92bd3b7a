"""Searches that survive an exception inside of their strategy: the next proposals are random points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, final

from mpi_opt.core.search_space.space import Limits, Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError, MPILearnError
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, Options
from mpi_opt.strategies.points.problems import Problems, described
from mpi_opt.strategies.points.sampling import Sampler
from mpi_opt.strategies.strategy import Cost, Decision, Strategy

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
            bookkeeping.n_figures = self._n_figures
            for proposal, outcome in self._observed:
                bookkeeping.observe(proposal, outcome)
            for proposal in self._pending.values():
                bookkeeping.add_pending(proposal)
            if self._steering is not None:
                points, limits = self._steering
                bookkeeping.steer(self._untried(points), limits)
            self._random = bookkeeping, Sampler(self._space, self._seed)
        return self._random
