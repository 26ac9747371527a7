"""Headings, tables and figures -> a Markdown file, and the LaTeX tables and image files that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from recoslip.bench.tables import Grid

Files: TypeAlias = dict[str, str | bytes]  # content by name


class Document:
    """A Markdown file that is being written, with its LaTeX tables and images.

    Args:
        heading: the first heading.
        stem: what the names of all its files begin with.
    """

    def __init__(self, heading: str, stem: str) -> None:
        self.stem = stem
        self._paragraphs = [f"# {heading}\n"]
        self._attachments: Files = {}

    def add_text(self, text: str) -> None:
        """Add a paragraph or a heading."""
        self._paragraphs.append(text + "\n")

    def add_table(self, heading: str, grid: Grid, suffix: str, text: str | None = None) -> None:
        """Add a heading, an explanation and a table, and the table as a LaTeX file too."""
        self.add_text(heading)
        if text is not None:
            self.add_text(text)
        self._paragraphs.append(grid.markdown())
        self._attachments[f"{self.stem}{suffix}.tex"] = grid.latex()

    def add_image(self, suffix: str, description: str, by_ending: Mapping[str, bytes]) -> None:
        """Add an image, given as the content of a file for each file ending."""
        self._attachments |= {f"{self.stem}{suffix}.{ending}": content for ending, content in by_ending.items()}
        self.add_text(f"![{description}]({self.stem}{suffix}.svg)")

    def files(self) -> Files:
        """Return all files."""
        return self._attachments | {f"{self.stem}.md": "\n".join(self._paragraphs)}
