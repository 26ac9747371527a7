"""pyproject.toml, workflows, Dockerfile and CITATION.cff -> versions, extras and commands that exist and agree."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
import typer
import yaml
from packaging.requirements import Requirement

import recoslip
from recoslip.products.cli.commands import app
from recoslip.products.review.access import allowed_hosts

ROOT = Path(__file__).parent.parent
PACKAGE = Path(recoslip.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
REPOSITORY = PROJECT["urls"]["Source"]
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"}  # that Windows lacks


def read_yaml(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def python_versions():
    """Return the versions of Python that the classifiers name."""
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    return [match[1] for match in found if match]


def jobs(path):
    return read_yaml(path)["jobs"].values()


def steps(path):
    return [step for job in jobs(path) for step in job["steps"]]


def named_extras(text):
    return {name for match in re.finditer(r"recoslip\[([\w,-]+)\]", text) for name in match[1].split(",")}


def test_there_are_workflows():
    assert [path.stem for path in WORKFLOWS] == ["docs", "release", "test"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_few_rights_and_an_end(path):
    workflow = read_yaml(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    assert "group" in workflow["concurrency"]
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 120
        rights = job.get("permissions", {})
        assert "write" not in rights.values() or (name == "publish" and rights.get("contents") != "write")
    for step in steps(path):
        assert re.search(r"@(release/)?v\d+$", step.get("uses", "@v1")), step  # by major version
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_exists(path):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for command in [step["run"] for step in steps(path) if "run" in step]:
        for target in re.findall(r"^make (\S+)", command, re.MULTILINE):
            assert target in targets
        for script in re.findall(r"^\.ci/\w+", command, re.MULTILINE):
            assert (ROOT / script).is_file()
        for extras in re.findall(r"\.\[([\w,]+)\]", command):
            assert set(extras.split(",")) <= EXTRAS


def test_only_the_release_gets_to_pypi_and_by_trusted_publishing():
    publish = read_yaml(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["publish"]
    assert publish["environment"] == "pypi"
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "build"
    (step,) = [step for step in publish["steps"] if step["uses"].startswith("pypa/")]
    assert "with" not in step  # no password
    others = [step.get("uses", "") for path in WORKFLOWS if path.stem != "release" for step in steps(path)]
    assert not [name for name in others if name.startswith("pypa/")]


def test_versions_of_python_agree():
    versions = python_versions()
    assert PROJECT["requires-python"] == f">={versions[0]}"
    tested = ROOT / ".github" / "workflows" / "test.yml"
    matrices = [job["strategy"]["matrix"]["python"] for job in jobs(tested) if "strategy" in job]
    assert matrices == [versions] * 3
    named = [
        str(step["with"]["python-version"])
        for path in WORKFLOWS
        for step in steps(path)
        if "python-version" in step.get("with", {})
    ]
    assert named
    assert all(name in versions or name == "${{ matrix.python }}" for name in named)
    images = re.findall(r"^FROM python:(\S+)-slim", DOCKERFILE, re.MULTILINE)
    assert len(images) == 2
    assert images[0] == images[1]
    assert images[0] in versions


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_template_asks_for_something(path):
    form = read_yaml(path)
    assert {"name", "description", "body"} <= set(form)
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_the_addresses_of_the_project_agree():
    documentation = PROJECT["urls"]["Documentation"]
    owner, name = REPOSITORY.split("/")[-2:]
    assert documentation == f"https://{owner}.github.io/{name}/"
    assert all(address.startswith((REPOSITORY, documentation)) for address in PROJECT["urls"].values())
    for file in ("README.md", "CHANGELOG.md", "CITATION.cff", "mkdocs.yml", ".github/ISSUE_TEMPLATE/config.yml"):
        named = re.findall(r"https://(?:github\.com/recoslip|recoslip\.github\.io)[^\s)]*", (ROOT / file).read_text())
        assert named, file
        assert all(address.startswith((REPOSITORY, documentation)) for address in named), file
    citation = read_yaml(ROOT / "CITATION.cff")
    assert (citation["repository-code"], citation["url"]) == (REPOSITORY, documentation)


def test_the_changelog_has_the_form_of_keep_a_changelog():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", version) for version in versions[1:])
    kinds = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert all(re.search(rf"^\[{version[1:].split(']')[0]}\]: https://", text, re.MULTILINE) for version in versions)


def test_the_install_page_names_every_extra():
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    table = page.partition("## Extras")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == EXTRAS


def test_readme_and_install_page_have_the_same_sizes_and_times():
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| `pip install .*?\| ([\d,]+) \| (\d+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(found) == 3
    assert all(f"| {megabytes} | {seconds} |" in page for megabytes, seconds in found)


def test_the_citation_is_of_this_version():
    citation = read_yaml(ROOT / "CITATION.cff")
    assert citation["version"] == recoslip.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["abstract"] == PROJECT["description"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert citation["title"] == PROJECT["name"]
    (paper,) = citation["references"]
    assert paper["title"] in re.sub(r"\s+", " ", (ROOT / "README.md").read_text(encoding="utf-8"))


def test_the_image_has_extras_that_exist_and_files_that_are_sent():
    assert "review" in named_extras(DOCKERFILE)
    assert named_extras(DOCKERFILE) <= EXTRAS
    sent = {
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")
    }
    copied = {
        name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    }
    assert copied == sent
    assert all((ROOT / name).exists() for name in copied - {"src"})


def test_the_commands_in_the_dockerfile_exist():
    commands = typer.main.get_command(app).commands
    text = re.sub(r"\\\n#", "", DOCKERFILE)
    lines = re.findall(r"^#   docker run .* recoslip +(.*)$", text, re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["detect", "review"]
    for name, *words in map(str.split, lines):
        options = {option for parameter in commands[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_a_review_in_a_container_answers_to_localhost():
    (port,) = set(re.findall(r"--publish 127\.0\.0\.1:(\d+):\1 ", DOCKERFILE))
    assert f"--host 0.0.0.0 --port {port}" in DOCKERFILE
    assert f"localhost:{port}" in allowed_hosts("0.0.0.0", int(port), [])


def test_every_extra_that_is_named_exists():
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *PACKAGE.rglob("*.py")]
    named = {path: named_extras(path.read_text(encoding="utf-8")) for path in texts if path.name != "log.md"}
    assert not {path.name: names - EXTRAS for path, names in named.items() if names - EXTRAS}
    assert {"ray", "review"} <= set().union(*named.values())


def test_tested_versions_are_allowed_and_bounds_are_lower_ones():
    requirements = [Requirement(line) for lines in PROJECT["optional-dependencies"].values() for line in lines]
    requirements += map(Requirement, PROJECT["dependencies"])
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    for requirement in requirements:
        if requirement.name != "recoslip":
            assert {bound.operator for bound in requirement.specifier} == {">="}, requirement
            assert requirement.specifier.contains(pinned.get(requirement.name, "9999")), requirement
    for name, extras in PROJECT["optional-dependencies"].items():
        own = [Requirement(line) for line in extras if line.startswith("recoslip")]
        assert all(requirement.extras <= EXTRAS for requirement in own), name


def test_modules_that_windows_lacks_are_imported_where_that_may_fail():
    found = []
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        guarded = {
            node
            for attempt in ast.walk(tree)
            if isinstance(attempt, ast.Try) and any(_catches_import_error(handler) for handler in attempt.handlers)
            for line in attempt.body
            for node in ast.walk(line)
        }
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            for name in POSIX_MODULES.intersection(names):
                found.append((path.name, name))
                assert node in guarded, f"{path.name} imports {name}, which Windows does not have"
    assert ("memory.py", "resource") in found


def _catches_import_error(handler):
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(each, ast.Name) and each.id in ("ImportError", "ModuleNotFoundError") for each in caught)
