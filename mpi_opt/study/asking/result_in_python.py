"""Checks the result of a trial that a user gives in Python, where messages speak of arguments and Python values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from mpi_opt.core.merit.figures import real_number
from mpi_opt.core.merit.figures_of_merit import FiguresOfMerit
from mpi_opt.errors import ConfigurationError
from mpi_opt.study.asking.external_results import ExternalResult


@dataclass(frozen=True)
class ResultReader:
    """Reads the arguments of a call.

    Attributes:
        call: ``Study.tell()`` or ``Study.add_trial()``, for messages.
        figures: The figures of merit of the study.
    """

    call: str
    figures: FiguresOfMerit

    def read(self, number: Any, result: Mapping[str, Any]) -> ExternalResult:
        """The result of a trial: exactly one of value, failed and lost; uncertainty beside a value.

        Raises:
            ConfigurationError: An argument is of another type, a number is not finite, or arguments exclude each other.
        """
        number = self.whole_number("number", number)
        given = {key: value for key, value in result.items() if value is not None}
        stated = [key for key in ("value", "failed", "lost") if key in given]
        if len(stated) != 1:
            ways = f'study.tell({number}, {self._example}), study.tell({number}, failed="why")'
            self._refuse(
                f"expected exactly one of value, failed and lost; found {' and '.join(stated) or 'none of them'}",
                f'call {ways} or study.tell({number}, lost="why")' if self._tells else "give the value",
            )
        if "value" not in given and "uncertainty" in given:
            self._refuse("uncertainty: a trial without a value has none", "leave it out, or give a value")
        read: dict[str, Any] = {key: self._figures(key, given[key]) for key in ("value", "uncertainty") if key in given}
        read |= {key: self._reason(key, given[key]) for key in ("failed", "lost") if key in given}
        return ExternalResult(number=number, **read)

    def whole_number(self, name: str, value: Any, least: int = 0) -> int:
        """An argument that is a whole number, also of NumPy.

        Raises:
            ConfigurationError: It is not, or less than `least`.
        """
        plain = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(plain, int) or isinstance(plain, bool) or plain < least:
            self._refuse(
                f"{name}: expected a whole number of {least} or more, found {value!r}",
                "give the number of the trial, such as trial.number" if name == "number" else f"give {name}={least}",
            )
        return int(plain)

    @property
    def _tells(self) -> bool:
        return "tell" in self.call

    @property
    def _example(self) -> str:
        names = self.figures.names
        return "0.25" if len(names) == 1 else f"{{{', '.join(f'{name!r}: 0.25' for name in names)}}}"

    def _figures(self, key: str, value: Any) -> float | dict[str, float]:
        names = self.figures.names
        if len(names) == 1:
            return self._number(key, value)
        plain = value.tolist() if hasattr(value, "tolist") else value
        fits = isinstance(plain, list | tuple) and len(plain) == len(names)
        if isinstance(plain, Mapping):
            fits = set(plain) == set(names)
            plain = [plain.get(name) for name in names]
        if not fits:
            wanted = f"{len(names)} numbers, for {' and '.join(names)}"
            self._refuse(f"{key}: expected {wanted}; found {value!r}", f"give a list, or {self._example}")
        return {name: self._number(f"{key} of {name}", one) for name, one in zip(names, plain, strict=True)}

    def _number(self, key: str, value: Any) -> float:
        try:
            number = real_number(value)
        except TypeError:
            self._refuse(f"{key}: expected one number, found {value!r}", "give, for example, 0.25")
        is_spread = key.startswith("uncertainty")
        if not math.isfinite(number) or (is_spread and number < 0):
            wanted = "a finite number of 0 or more" if is_spread else "a finite number"
            reason = 'if the trial has no value, give the reason: failed="the loss is nan"'
            cure = "leave it out" if is_spread else reason if self._tells else "leave the trial out"
            self._refuse(f"{key}: expected {wanted}, found {value!r}", cure)
        return number

    def _reason(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            self._refuse(f"{key}: expected the reason as a text, found {value!r}", f'give, for example, {key}="why"')
        return str(value)

    def _refuse(self, problem: str, cure: str) -> NoReturn:
        raise ConfigurationError(problem, where=self.call, cure=cure)
