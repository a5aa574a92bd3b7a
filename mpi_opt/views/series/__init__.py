"""The data of all figures: order, ranges, ticks, and points outside of a range.

Computed once. `mpi_opt.views.figures` and `mpi_opt.views.page` only draw them, so that they cannot disagree.
"""

from mpi_opt.study.presentation import main_figure_name
from mpi_opt.views.series.axes import curve_range, sensible_range
from mpi_opt.views.series.figures import (
    Curve,
    by_end_time,
    choose_two,
    complete,
    curves_to_draw,
    improvements,
    local_time,
    main_figures,
    main_metric,
    mean_curves,
)

__all__ = [
    "Curve",
    "by_end_time",
    "choose_two",
    "complete",
    "curve_range",
    "curves_to_draw",
    "improvements",
    "local_time",
    "main_figure_name",
    "main_figures",
    "main_metric",
    "mean_curves",
    "sensible_range",
]
