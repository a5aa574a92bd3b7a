"""The data of all figures: order, ranges, ticks, and points outside of a range.

Computed once. `mpi_opt.views.figures` and `mpi_opt.views.page` only draw them, so that they cannot disagree.
"""
