"""Draws the pictures of the documentation from the search of the tutorial: ``python docs/pictures.py``.

It runs the tutorial's search with 30 trials on five ranks, which takes about three minutes, and needs Chromium for the
picture of the report.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
KINDS = ("history", "importance", "parallel", "slice", "contour", "timeline", "curves")
N_RANKS, N_TRIALS = "5", "30"
REPORT_SIZE = (1280, 1330)
"""Width and height of the picture of the report, in pixels."""


def main() -> None:
    """Runs the search in a temporary folder and writes the pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        run(folder, "mpi-learn", "prepare", "digits", "--to", "digits.h5")
        run(folder, "mpi-opt", "search", "digits.yaml", "-n", N_RANKS, "--trials", N_TRIALS)
        for kind in KINDS:
            run(folder, "mpi-opt", "plot", kind, "--study", "digits", "-o", str(IMAGES / f"{kind}.png"))
        run(folder, "mpi-opt", "report", "--study", "digits", "-o", "report.html")
        photograph(folder / "report.html", IMAGES / "report.png")
    for picture in IMAGES.glob("*.png"):
        shrink(picture)


def write_files(folder: Path) -> None:
    """Writes the files of the tutorial, whose blocks of code begin with a comment ``# NAME``."""
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    for name, code in re.findall(r"^```\w+\n# (digits\.\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(code, encoding="utf-8")


def photograph(page: Path, picture: Path) -> None:
    """Writes a picture of the upper part of a page."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    size = f"--window-size={','.join(map(str, REPORT_SIZE))}"
    run(page.parent, "chromium", *options, size, f"--screenshot={picture}", page.as_uri())


def shrink(picture: Path) -> None:
    """Stores a picture with 256 colours, in about a third of the size."""
    Image.open(picture).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)


def run(folder: Path, program: str, *arguments: str) -> None:
    """Runs a program, preferably of this Python environment; its failure ends this one."""
    own = Path(sys.executable).parent / program
    subprocess.run([str(own) if own.exists() else program, *arguments], cwd=folder, check=True)


if __name__ == "__main__":
    main()
