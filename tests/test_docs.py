"""The documentation: all pages are in the site, all links lead somewhere, and nothing is loaded from another host."""

import ast
import dataclasses
import importlib
import inspect
import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import typer
import yaml
from markdown_it import MarkdownIt

import recoslip
from recoslip.data.options import ReadOptions, declared
from recoslip.learning.methods import METHODS
from recoslip.products.cli import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
OUTSIDE = {  # pages of the site that lie elsewhere
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "DEVIATIONS.md": "deviations.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}
PAGES = {path: path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))}
PAGES |= {ROOT / path: page for path, page in OUTSIDE.items()}
FOR_CONTRIBUTORS = {page for page in PAGES.values() if page == "log.md" or page.startswith("decisions/")}
BADGES = re.compile("<!-- badges -->.*?<!-- end of badges -->", re.DOTALL)  # the site leaves them out
PARSER = MarkdownIt("gfm-like", {"linkify": False})


class Settings(yaml.SafeLoader):
    """Reads mkdocs.yml, in which one value is a Python object."""


Settings.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def entries(nav):
    """Yield the pages of a navigation."""
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else entries(value)


def inline(path):
    """Yield what the text of a page is made of: links, images and words."""
    for token in PARSER.parse(path.read_text(encoding="utf-8")):
        yield from token.children or []


def targets(path):
    """Yield where links and images of a page lead."""
    for token in inline(path):
        target = token.attrs.get("href") if token.type == "link_open" else token.attrs.get("src")
        if target:
            yield unquote(str(target))


def anchors(path):
    """Return the anchors of a page as forges make them of headings, and those of the reference."""
    tokens = PARSER.parse(path.read_text(encoding="utf-8"))
    headings = [
        "".join(child.content for child in tokens[k + 1].children if child.type in ("text", "code_inline"))
        for k, token in enumerate(tokens)
        if token.type == "heading_open"
    ]
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    numbered = [f"{slug}-{slugs[:k].count(slug)}" if slug in slugs[:k] else slug for k, slug in enumerate(slugs)]
    return {*numbered, *re.findall(r"^::: (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)}


def test_the_navigation_names_every_page_for_users_once():
    nav = list(entries(yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Settings)["nav"]))
    assert Counter(nav) == Counter(set(PAGES.values()) - FOR_CONTRIBUTORS)


def test_contributing_links_to_every_note():
    linked = {target.removeprefix("docs/") for target in targets(ROOT / "CONTRIBUTING.md")}
    assert linked >= FOR_CONTRIBUTORS


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_and_anchors_lead_somewhere(path):
    for target in targets(path):
        if re.match(r"\w+:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_the_reference_has_every_public_name_and_every_method():
    documented = set().union(*(anchors(path) for path in (DOCS / "api").glob("*.md")))
    assert {f"recoslip.{name}" for name in recoslip.__all__} <= documented
    classes = {method.implementation.replace(":", ".") for method in METHODS.values()}
    public = {f"{getattr(recoslip, name).__module__}.{name}" for name in ("RecoSlip", "RecoSlipPlus", "Scan")}
    assert classes - public <= documented
    index = {anchor for target in targets(DOCS / "api" / "index.md") for anchor in target.split("#")[1:]}
    assert {f"recoslip.{name}" for name in recoslip.__all__} <= index


def test_the_reference_of_the_command_line_has_every_option_and_needs_nothing_that_computes():
    code = (
        "import runpy, sys\n"
        "print(runpy.run_path(sys.argv[1])['reference']())\n"
        "assert not {'torch', 'polars', 'sklearn'} & set(sys.modules)"
    )
    hook = DOCS / "hooks" / "command_line.py"
    text = subprocess.run([sys.executable, "-c", code, hook], capture_output=True, text=True, check=True).stdout
    sections = dict(re.findall(r"^## (recoslip[\w ]*)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert "| `--seed` | `0` |" in sections["recoslip demo"]
    assert "| `STATE` | required |" in sections["recoslip watch"]
    assert "tables \\[datasets.NAME]" in sections["recoslip bench main"]
    assert "[watch](#recoslip-watch)" in sections["recoslip"]
    waiting = [("recoslip", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        waiting += [(f"{name} {each.name}", each) for each in getattr(command, "commands", {}).values()]
        visible = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
        options = [option for each in visible for option in each.opts]
        assert [option for option in options if f"`{option}`" not in sections[name]] == []


def test_the_reference_documents_settings_as_the_detectors_do():
    griffe = pytest.importorskip("griffe")
    extension = runpy.run_path(str(DOCS / "hooks" / "declarations.py"))["Declarations"]
    extensions = griffe.load_extensions(extension)
    package = griffe.load(
        "recoslip", search_paths=[Path(recoslip.__file__).parents[1]], extensions=extensions, allow_inspection=False
    )
    for method in METHODS.values():
        described = package[method.implementation.removeprefix("recoslip.").replace(":", ".")]
        fields = {field.name: field.metadata for field in dataclasses.fields(method.kind)}
        for section, kind in (("Args", "param"), ("Attributes", "learned")):
            text = re.search(rf"^{section}:\n((?:    .*\n?)+)", described.docstring.value, re.MULTILINE)[1]
            lines = [f"    {name}: {metadata[kind].doc}." for name, metadata in fields.items() if kind in metadata]
            assert sorted(text.splitlines()) == sorted(lines), method.name
        given = {p.name: str(p.default) for p in described.members["__init__"].parameters if p.name != "self"}
        defaults = inspect.signature(method.kind).parameters
        assert {name: eval(text) for name, text in given.items()} == {k: p.default for k, p in defaults.items()}
    options = package["data.options.ReadOptions"]
    for name, (_, own) in declared().items():
        assert options[name].docstring.value == f"{own.help} {own.more}".strip()
    defaults = {p.name: ast.literal_eval(str(p.default)) for p in options.parameters if p.name != "self"}
    assert defaults == vars(ReadOptions())
    findings = package["inference.analysis.Findings"]
    assert findings["listed"].docstring.value == "(nodes,) the target nodes that are listed as novel."
    assert '```pycon\n>>> Watch("nowhere")\nTraceback' in package["products.watch.watch.Watch"].docstring.value


def printed_commands(text):
    """Yield the words of each command of recoslip that a page prints, in blocks and in lines."""
    joined = re.sub(r"\\\n\s*", "", text)
    for block, line in re.findall(r"^(?:\$ | {4})(recoslip .*)$|`(recoslip [^`\n]*)`", joined, re.MULTILINE):
        yield re.sub(r"\s+#.*|\.\.\.", "", block or line).split()


def options_of(command):
    """Return the options of a command and of those below it."""
    own = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    return own.union(*(options_of(each) for each in getattr(command, "commands", {}).values()))


def test_commands_that_pages_print_have_options_that_exist():
    commands = typer.main.get_command(app).commands
    settings = {f"--{field.name.replace('_', '-')}" for m in METHODS.values() for field in dataclasses.fields(m.kind)}
    seen = 0
    for path in (path for path, page in PAGES.items() if page not in ("log.md", "changelog.md")):
        for _, *words in printed_commands(path.read_text(encoding="utf-8")):
            if words and not words[0].startswith(("--", "COMMAND")):
                used = {word.partition("=")[0] for word in words if word.startswith("--")}
                assert used <= options_of(commands[words[0]]) | settings | {"--help"}, (path, words)
                seen += 1
    assert seen > 60


def exists(name):
    """Whether a dotted name is that of a module, or of an attribute of one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        if (found := module_of(parts[:count])) is not None:
            return all((found := getattr(found, part, None)) is not None for part in parts[count:])
    return False


def module_of(parts):
    try:
        return importlib.import_module(".".join(parts))
    except ImportError:
        return None


def test_names_and_files_that_pages_mention_exist():
    for path, page in PAGES.items():
        if page in ("log.md", "changelog.md"):
            continue
        text = path.read_text(encoding="utf-8")
        names = set(re.findall(r"\brecoslip(?:\.[A-Za-z]\w*)+(?=[`(])", text)) - {"recoslip.json", "recoslip.detectors"}
        assert not [name for name in names if not exists(name)], page
        files = {f"tests/{name}" for name in re.findall(r"\btest_\w+\.py", text)}
        files |= set(re.findall(r"benchmarks/[\w/]+\.py", text))
        layers = "base|data|learning|inference|pipeline|products"
        files |= {f"src/recoslip/{name}" for name in re.findall(rf"`((?:{layers})/[\w/]+\.py)`", text)}
        assert not [name for name in files if "your_method" not in name and not (ROOT / name).exists()], page


class Elements(HTMLParser):
    """Counts the elements of a page's text, and collects what the page loads."""

    def __init__(self, text, counts=True):
        super().__init__()
        self.counted, self.loaded, self.counts = Counter(), [], counts
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.counts = self.counts or tag == "article"
        if self.counts and tag in ("h1", "h2", "h3", "li", "table", "pre", "img"):
            self.counted[tag] += 1
        self.loaded += [given[name] for name in ("src", "srcset", "data", "poster") if given.get(name)]
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(given["href"])
        self.loaded += re.findall(r"url\(([^)]*)\)", given.get("style") or "")

    def handle_endtag(self, tag):
        self.counts = self.counts and tag != "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it."""
    pytest.importorskip("mkdocs", reason="needs recoslip[docs]")
    pytest.importorskip("material", reason="needs recoslip[docs]")
    pytest.importorskip("mkdocstrings", reason="needs recoslip[docs]")
    pytest.importorskip("latex2mathml", reason="needs recoslip[docs]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    result = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert (result.returncode, result.stdout + result.stderr) == (0, "")  # no warning, whatever its kind
    return folder


@pytest.mark.slow
def test_the_site_has_what_a_reader_of_the_repository_sees(site):
    for path, page in PAGES.items():
        if page.startswith("api/"):
            continue
        seen = Elements(PARSER.render(BADGES.sub("", path.read_text(encoding="utf-8")))).counted
        assert Elements((site / page).with_suffix(".html").read_text(encoding="utf-8"), counts=False).counted == seen, (
            page
        )
    reference = (site / "api" / "detectors.html").read_text(encoding="utf-8")
    assert "<math" in reference
    assert "arithmatex" not in reference  # every formula was turned into MathML
    assert '<a href="../guarantees.html">docs/guarantees.md</a>' in reference
    assert "--max-growth" in (site / "api" / "command-line.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_site_loads_nothing_from_another_host(site):
    loaded = []
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        loaded += Elements(text).loaded
        assert 'class="mermaid"' not in text  # which the theme would load a script for
    for path in [*site.rglob("*.css"), *(ROOT / "docs" / "hooks").glob("*.js")]:
        text = path.read_text(encoding="utf-8")
        loaded += re.findall(r"url\(([^)]*)\)", text) + re.findall(r"""@import\s+["']?([^"';]+)""", text)
    assert any("bundle" in each for each in loaded)
    assert not [each for each in loaded if re.match(r"""["']?\s*(https?:)?//""", each)]


@pytest.mark.slow
def test_the_site_and_its_search_work_from_the_file_system(site, browser):
    asked, errors = [], []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    for name in ("results.html", "api/detectors.html", "tutorials/tables.html"):
        page.goto((site / name).as_uri())
        page.wait_for_load_state("networkidle")
    page.locator("input.md-search__input").click()
    page.locator("input.md-search__input").press_sequentially("certificate")
    page.locator(".md-search-result__item a").first.click()
    page.wait_for_url(
        re.compile("guarantees.html|results.html|review.html|glossary.html|tables.html|changelog|questions.html")
    )
    assert asked
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
    assert not errors
