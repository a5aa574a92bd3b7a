"""The examples of the documentation: fenced blocks of code, page by page.

A block whose first line is the comment ``# FILE`` is the content of that file. The others are run or checked, depending
on their language. The blocks of a page share one folder and build on each other, as they do for a reader.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONTINUES = {"figure-of-merit.md": "tutorial.md", "number-of-ranks.md": "models.md", "pipeline.md": "models.md"}
"""Page -> the page whose files it uses."""
FILE_NAME = re.compile(r"# ([\w-]+\.\w+)\n")
FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A fenced block.

    Attributes:
        page: The path of its page below docs/.
        line: The number of its first line.
        language: ``bash``, ``python``, ``yaml``, ``sql``, ``text``, …
        title: The name of the file that it shows; empty if none.
        code: The content.
    """

    page: str
    line: int
    language: str
    title: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[list[str]]:
        """The words of each command of a bash block, without comments, with continued lines joined."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def examples(*languages: str, page: str | None = None) -> list[Example]:
    """All examples in these languages, in the order of pages and lines."""
    found = []
    for path in sorted(DOCS.glob("*.md")):
        if page is None or path.name == page:
            found += _of_page(path)
    return [one for one in found if not languages or one.language in languages]


def write_files(folder: Path, page: str) -> None:
    """Writes the files that a page shows into `folder`."""
    for name in (CONTINUES.get(page), page):
        for example in examples(page=name) if name else []:
            if example.title:
                (folder / example.title).write_text(example.code, encoding="utf-8")


def _of_page(path: Path) -> list[Example]:
    text = path.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        indent, language, code = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        code = re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)
        title = FILE_NAME.match(code)
        found.append(Example(path.name, line, language, title[1] if title else "", code))
    return found
