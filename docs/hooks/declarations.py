"""Declarations of settings and comments on attributes -> docstrings and constructors that mkdocstrings shows.

`recoslip.base.settings` writes a detector's constructor and docstring when the class is made. The reference is made
from the code as text, so the same is done here: `epochs: int = param(Integer(1), "how many", default=9)` is an argument
of the constructor, and `scores_: Scores = learned("novelty")` an attribute. The same holds for `option(...)` of
`recoslip.data.options`. Elsewhere a comment behind an attribute says what it is, and doctests are blocks of code.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from io import StringIO
from typing import Any

import griffe

DECLARED = {"param": "Args", "learned": "Attributes"}
DETECTOR = "recoslip.learning.base.Detector"
DOCTEST = re.compile(r"^>>> .*?(?=\n[ \t]*\n|\Z)", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"[ \t]*# (doctest|noqa): .*")


class Declarations(griffe.Extension):
    """Reads declarations, comments and doctests."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Mark the doctests of a docstring as code."""
        if obj.docstring is not None and "```pycon" not in obj.docstring.value:
            obj.docstring.value = DOCTEST.sub(lambda found: _code(found[0]), obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, loader: Any, **_: Any) -> None:
        """Complete all classes of the package, when all of them are known."""
        for cls in list(_classes(pkg)):
            line = [cls, *cls.mro()]
            if any(each.path == DETECTOR for each in line):
                _make_estimator(cls, line, pkg)
            else:
                _read_options(cls)
                _read_comments(cls)


def _code(doctest: str) -> str:
    return f"```pycon\n{OPTION.sub('', doctest)}\n```"


def _classes(module: griffe.Module) -> Iterator[griffe.Class]:
    for member in module.members.values():
        if isinstance(member, griffe.Module):
            yield from _classes(member)
        elif isinstance(member, griffe.Class):
            yield member


def _read_options(cls: griffe.Class) -> None:
    """Take the help of each option as its docstring, and its default as its value."""
    for attribute in _own_attributes(cls).values():
        call = attribute.value
        if not isinstance(call, griffe.ExprCall) or str(call.function) != "option":
            continue
        named = {each.name: each.value for each in call.arguments if isinstance(each, griffe.ExprKeyword)}
        first, *default = [each for each in call.arguments if not isinstance(each, griffe.ExprKeyword)]
        more = ast.literal_eval(str(named.get("more", "''")))
        attribute.docstring = griffe.Docstring(f"{ast.literal_eval(str(first))} {more}".strip(), parent=attribute)
        attribute.value = (
            "{}" if str(named.get("kind")) in ("'numbers'", "'pairs'") else default[0] if default else "None"
        )


def _read_comments(cls: griffe.Class) -> None:
    """Take the comment behind an attribute as its docstring, where it has none."""
    for attribute in _own_attributes(cls).values():
        if attribute.docstring is not None or attribute.is_private:
            continue
        comments = [token.string for token in _tokens("\n".join(attribute.lines)) if token.type == tokenize.COMMENT]
        text = comments[-1].removeprefix("#").strip() if comments else ""
        if text and not text.startswith(("noqa", "type:")):
            sentence = text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")
            attribute.docstring = griffe.Docstring(sentence, parent=attribute)


def _tokens(code: str) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.generate_tokens(StringIO(code.strip()).readline)
    except tokenize.TokenError:
        return


def _make_estimator(cls: griffe.Class, line: list[Any], package: griffe.Module) -> None:
    """Give a detector its constructor, and a docstring with all of its settings, its own before those it inherits."""
    documented: dict[str, dict[str, str]] = {kind: {} for kind in DECLARED}
    arguments: dict[str, griffe.Parameter] = {}
    for base in line:
        for name, attribute in _own_attributes(base).items():
            kind, default, text = _declaration(attribute, package)
            if kind == "learned":
                documented[kind].setdefault(name, text)
            elif kind == "param" or _is_setting(name, line, package):
                default = default if kind else attribute.value  # `epochs: int = 60` changes the default alone
                parameter = griffe.Parameter(
                    name, annotation=attribute.annotation, kind=griffe.ParameterKind.keyword_only, default=default
                )
                arguments.setdefault(name, parameter)
                documented["param"][name] = documented["param"].get(name) or text
    constructor = griffe.Function(
        "__init__", parameters=griffe.Parameters(griffe.Parameter("self"), *arguments.values())
    )
    cls.set_member("__init__", constructor)
    own_text = cls.docstring.value if cls.docstring is not None else ""
    sections = [
        "\n".join([f"{DECLARED[kind]}:", *(f"    {name}: {text}." for name, text in documented[kind].items())])
        for kind in DECLARED
        if documented[kind]
    ]
    cls.docstring = griffe.Docstring("\n\n".join([own_text, *sections]), parent=cls)


def _is_setting(name: str, line: list[Any], package: griffe.Module) -> bool:
    found = [own[name] for base in line if name in (own := _own_attributes(base))]
    return any(_declaration(attribute, package)[0] == "param" for attribute in found)


def _own_attributes(cls: Any) -> dict[str, Any]:
    return {name: member for name, member in cls.members.items() if isinstance(member, griffe.Attribute)}


def _declaration(attribute: Any, package: griffe.Module) -> tuple[str | None, Any, str]:
    """Return what an attribute is declared as, its default and its text; a constant stands for its own value."""
    value = attribute.value
    if isinstance(value, griffe.ExprName):
        value = _constant(value, package)
    if not isinstance(value, griffe.ExprCall) or str(value.function) not in DECLARED:
        return None, None, ""
    kind, given = str(value.function), list(value.arguments)
    if kind == "learned":
        return kind, None, ast.literal_eval(str(given[0]))
    default = next(each.value for each in given if isinstance(each, griffe.ExprKeyword) and each.name == "default")
    constant = _constant(default, package) if isinstance(default, griffe.ExprName) else None
    return kind, constant or default, ast.literal_eval(str(given[1]))


def _constant(name: griffe.ExprName, package: griffe.Module) -> Any:
    """Return the value of a module's constant, from wherever it was imported."""
    path = name.canonical_path.removeprefix(f"{package.path}.")
    try:
        return package[path].value
    except (KeyError, AttributeError, griffe.AliasResolutionError):
        return None
