"""How durations are written in a space.yaml."""

from __future__ import annotations

import pytest

from mpi_learn.settings.validation import InvalidValue, validated
from mpi_opt.configuration.sections import TrialSection, seconds
from mpi_opt.errors import ConfigurationError

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


@pytest.mark.parametrize(
    ("duration", "expected_s"),
    [
        (90, 90.0),
        ("90", 90.0),
        ("1.5h", 1.5 * HOUR),
        ("1h30m", 1.5 * HOUR),
        ("2d", 2 * DAY),
        ("2:30", 2.5 * MINUTE),
        ("12:00:00", 12 * HOUR),
        ("1-12", 1.5 * DAY),
        ("1-12:00", 1.5 * DAY),
        ("1-02:03:04", DAY + 2 * HOUR + 3 * MINUTE + 4),
    ],
)
def test_durations_have_units_or_the_forms_of_slurm(duration, expected_s):
    assert seconds(duration) == expected_s


@pytest.mark.parametrize("duration", ["soon", "1h30", "-5", "1-", "1:2:3:4", ""])
def test_other_text_is_refused(duration):
    with pytest.raises(InvalidValue, match="expected a duration such as 90s, 30m or 2h"):
        seconds(duration)


@pytest.mark.parametrize(
    ("duration", "message"),
    [
        (True, "expected a duration, found true"),
        (0, "must be more than 0"),
        ("10000000000", "at most 1000000000 seconds"),
        (1e300, "at most 1000000000 seconds"),
    ],
)
def test_what_no_clock_can_measure_is_refused(duration, message):
    with pytest.raises(ConfigurationError, match=message):
        validated(TrialSection, {"timeout": duration}, "space.yaml")
