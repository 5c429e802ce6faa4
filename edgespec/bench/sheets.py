"""A table before it is drawn: cut to a width, drawn for a terminal, or written as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

GAP = 2
WIDEST = 28
"""Cells of a column at most: names are users' own."""
_SPOKEN = str.maketrans({"×": "x", "–": "-", "▲": "+", "▼": "-", "…": "~", "─": "-", "Σ": "sum of"})


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table under a `title`, with a `note` below.

    Cells are Text, so that no name is ever read as markup. A sheet that is too wide becomes several, and the first
    `fixed` columns stand in each. The columns after these stand at the right, or at the `left`. An empty line follows
    each row of `breaks`.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]
    note: str = ""
    fixed: int = 1
    left: bool = False
    breaks: frozenset[int] = frozenset()


def clean(name: str) -> str:
    """A user's name in one line, without characters that would move the cursor."""
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())


def draw(sheet: Sheet, width: int) -> RenderableType:
    """The sheet in at most `width` cells a line: one table, or as few as it takes."""
    parts: list[RenderableType] = [Text(sheet.title, style="bold")]
    for part in cut(sheet, width):
        parts += [_table(part), Text()]
    if sheet.note:
        parts[-1:] = [Text(sheet.note, style="dim"), Text()]
    return Group(*parts)


def cut(sheet: Sheet, width: int) -> list[Sheet]:
    """As few sheets as fit `width`, with much the same number of columns; one column alone is never cut."""
    widths, count = _widths(sheet), len(sheet.head)
    columns = [list(range(count))]
    for parts in range(1, count - sheet.fixed + 1):
        spans = np.array_split(np.arange(sheet.fixed, count), parts)
        columns = [[*range(sheet.fixed), *span.tolist()] for span in spans]
        if all(sum(widths[i] + GAP for i in one) - GAP <= width for one in columns):
            break
    return [_only(sheet, one) for one in columns]


def markdown(sheet: Sheet) -> str:
    """The sheet as GitHub's Markdown, whole, however wide."""
    free = len(sheet.head) - sheet.fixed
    lines = [
        [escaped(head.replace("\n", " ")) for head in sheet.head],
        [":--"] * sheet.fixed + [":--" if sheet.left else "--:"] * free,
        *([escaped(cell.plain) for cell in row] for row in sheet.rows),
    ]
    table = "\n".join(f"| {' | '.join(cell.strip() for cell in line)} |" for line in lines)
    return "\n\n".join(part for part in (f"**{escaped(sheet.title)}**", table, escaped(sheet.note)) if part)


def escaped(text: str) -> str:
    """Text that Markdown shows as it stands."""
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", text)


def as_text(renderable: RenderableType, width: int = 100, encoding: str = "utf-8") -> str:
    """What goes into a file: no colours, no trailing blanks. What `encoding` cannot say is said in ASCII."""
    console = Console(width=width, color_system=None, force_terminal=False, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(renderable)
    text = "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines()) + "\n"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_SPOKEN).encode(encoding, "replace").decode(encoding)
    return text


def _only(sheet: Sheet, columns: Sequence[int]) -> Sheet:
    rows = tuple(tuple(row[i] for i in columns) for row in sheet.rows)
    return replace(sheet, head=tuple(sheet.head[i] for i in columns), rows=rows)


def _widths(sheet: Sheet) -> list[int]:
    heads = [max(map(cell_len, head.split("\n"))) for head in sheet.head]
    return [min(WIDEST, max([head, *(row[i].cell_len for row in sheet.rows)])) for i, head in enumerate(heads)]


def _table(sheet: Sheet) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0), header_style="bold")
    for i, (head, width) in enumerate(zip(sheet.head, _widths(sheet), strict=True)):
        left = sheet.left or i < sheet.fixed
        table.add_column(Text(head), width=width, no_wrap=True, justify="left" if left else "right")
    for i, row in enumerate(sheet.rows):
        table.add_row(*row, end_section=i in sheet.breaks)
    return table
