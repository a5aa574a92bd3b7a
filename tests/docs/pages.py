"""The examples of the documentation: fenced blocks of code, page by page.

A block with ``title="FILE"`` is that file; the others are run or checked by their language. The blocks of a page share
one folder and build on each other, as a reader's would.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A fenced block.

    Attributes:
        page: Its page, below docs/.
        line: Where it begins.
        language: ``bash``, ``python``, ``yaml``, ``sql``, ``text``, …
        title: The file that it is; empty if none.
        code: What stands in it.
        is_slow: It is marked ``.slow`` in the fence: run with the slow tests alone.
    """

    page: str
    line: int
    language: str
    title: str
    code: str
    is_slow: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[list[str]]:
        """The words of each command of a bash block, comments and line ends joined by a backslash taken away."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def examples(*languages: str, page: str | None = None) -> list[Example]:
    """All examples in these languages, in the order of pages and lines."""
    found = []
    for path in sorted(DOCS.glob("*.md")):
        if page is None or path.name == page:
            found += _of_page(path)
    return [one for one in found if not languages or one.language in languages]


def _of_page(path: Path) -> list[Example]:
    text = path.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        indent, language, info, code = match.groups()
        title = re.search(r'title="([^"]+)"', info)
        line = text.count("\n", 0, match.start()) + 1
        code = re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)
        found.append(Example(path.name, line, language, title[1] if title else "", code, "slow" in info))
    return found
