"""Published data sets in a folder beside the project, or in ``$SHARED_DATA``. They are not part of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
ATLAS = SHARED / "hep" / "atlas_higgs_10k.csv.gz"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
"""Skips a test if the folder is missing. If it exists, a missing file in it is a failure."""
