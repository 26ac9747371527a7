"""Pages outside docs/ and links between them -> pages and links of the site.

README.md, CHANGELOG.md and others are in the root of the repository and are pages of the site too. Links are written
for the repository; here they are turned into links of the site. Of a link to a file that is not on the site, the text
is left. Badges of README.md are left out, because their pictures would be loaded from other hosts.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent.parent
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "DEVIATIONS.md": "deviations.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}
ORIGIN = {page: path for path, page in OUTSIDE.items()}

FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,}).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|!\[[^\]]*\]\([^)]*\)|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)")
ATTRIBUTE = re.compile(r'(?P<before>\b(?:src|href|srcset)=")(?P<target>[^"\s]+)(?=")')
REAL_PAGE = re.compile(r"<!-- page: ([\w-]+) -->")
BADGES = re.compile("<!-- badges -->.*?<!-- end of badges -->", re.DOTALL)
MENTION = re.compile(r"docs/([\w/-]+)\.md")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie outside docs/."""
    for path, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn the links of a page into links of the site, and name the gallery's real pages where they were made."""
    origin = ORIGIN.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    markdown = BADGES.sub("", markdown)
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [_linked(markdown[end : fence.start()], origin, page, files), fence[0]]
        end = fence.end()
    return "".join([*parts, _linked(markdown[end:], origin, page, files)])


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Turn what docstrings mention, such as docs/guarantees.md, into links."""
    if not page.file.src_uri.startswith("api/"):
        return html

    def link(match: re.Match[str]) -> str:
        found = files.get_file_from_path(f"{match[1]}.md")
        return match[0] if found is None else f'<a href="{found.url_relative_to(page.file)}">{match[0]}</a>'

    return MENTION.sub(link, html)


def _linked(markdown: str, origin: str, page: Any, files: Files) -> str:
    def link(match: re.Match[str]) -> str:
        text = LINK.sub(link, match["text"])
        target = site_target(match["target"], origin, page.file.src_uri, files)
        return text if target is None else f"{match['image']}[{text}]({target})"

    def attribute(match: re.Match[str]) -> str:
        target = site_target(match["target"], origin, page.file.src_uri, files)
        return match["before"] + (match["target"] if target is None else target)

    def real_page(match: re.Match[str]) -> str:
        path = f"gallery/{match[1]}.html"
        return f"[Open the page itself]({path}){{ .md-button }}" if files.get_file_from_path(path) else ""

    return REAL_PAGE.sub(real_page, ATTRIBUTE.sub(attribute, LINK.sub(link, markdown)))


def site_target(target: str, origin: str, page: str, files: Files) -> str | None:
    """Return where a link of the repository leads on the site; None for a file that is not part of it.

    Args:
        target: the link as it is written.
        origin: path in the repository of the file that it is written in.
        page: that file's path on the site.
        files: of the site.
    """
    path, hash_sign, anchor = target.partition("#")
    if not path or ":" in path or path.startswith("/"):
        return target
    found = posixpath.normpath(posixpath.join(posixpath.dirname(origin), unquote(path)))
    own = OUTSIDE.get(found, found.removeprefix("docs/"))
    on_site = files.get_file_from_path(own) if found in OUTSIDE or found.startswith("docs/") else None
    if on_site is not None and on_site.inclusion.is_included():
        return posixpath.relpath(own, posixpath.dirname(page) or ".") + hash_sign + anchor
    return None if (ROOT / found).exists() else target  # what does not exist is for MkDocs to warn of
