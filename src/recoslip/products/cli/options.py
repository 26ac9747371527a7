"""Options that several commands have, their texts as values, and settings of a method: from --config and options."""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import Field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.columns import Columns
from rich.padding import Padding

from recoslip.base.errors import MissingExtra, SettingError, nearest
from recoslip.base.files import printable
from recoslip.data.options import Option, declared
from recoslip.products.cli.console import stdout

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier result in the output folder.")]
ScoresFormat = Annotated[str, typer.Option("--format", help="Format of the table of scores: csv or parquet.")]
Show = Annotated[str, typer.Option(help="Columns to show beside the nodes in the report, separated by commas.")]
MaxFpr = Annotated[
    float | None,
    typer.Option(help="Fraction of the known target nodes that may be listed; default: that of the method, 0.01."),
]
Fdr = Annotated[float | None, typer.Option(help="List nodes by this false-discovery rate instead of --max-fpr.")]
Title = Annotated[str | None, typer.Option(help="Title of the report.")]
Device = Annotated[str | None, typer.Option(help="Device to compute on: auto, cpu or cuda; default: auto.")]
Align = Annotated[
    str,
    typer.Option(
        "--align",
        help="Bring the target's features to the source's location and scale: off, on, or auto, where that makes the "
        "two comparable.",
    ),
]
AllowLeak = Annotated[
    str, typer.Option(help="Columns that may say the same as the domain, separated by commas; otherwise the run stops.")
]

NOT_READ = ("category",)  # of use in Python and in the bench alone
PANEL = "Reading the tables"


def takes(*only: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of reading tables; those that were given reach its argument `read`.

    Args:
        *only: their names; by default all.
    """
    chosen = {name: each for name, each in declared(only or None).items() if name not in NOT_READ}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(command, eval_str=True)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "read"]

        @functools.wraps(command)
        def call(**values: Any) -> Any:
            read = {}
            for name, (_, option) in chosen.items():
                given = values.pop(name)
                if option.old and (before := values.pop(option.old)) is not None:
                    given = before if given is None else given
                if given is not None and given is not False:
                    read[name] = _parse(option, name, given)
            return command(**values, read=read)

        call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*own, *(parameter for each in chosen.values() for parameter in _parameters(*each))]
        )
        return call

    return decorate


def _parameters(own: Field[Any], option: Option) -> list[inspect.Parameter]:
    """Return the parameter of an option, and a hidden one for the name that it had before."""
    text = re.sub(r"`(\w+)`", r"--\1", option.help)
    text += " Separated by commas." if option.kind in ("names", "numbers") else ""
    text += f" Default: {own.default}." if own.default and isinstance(own.default, str) else ""
    is_switch = option.kind == "switch"
    kind = bool if is_switch else str | None
    shown: dict[str, Any] = {"help": text, "rich_help_panel": PANEL, "show_default": False}
    given = [(own.name, shown)] + ([(option.old, {"hidden": True})] if option.old else [])
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if is_switch else None,
            annotation=Annotated[kind, typer.Option(f"--{name.replace('_', '-')}", **more)],
        )
        for name, more in given
    ]


def _parse(option: Option, name: str, given: Any) -> Any:
    if option.kind == "names":
        return split_names(given)
    return parse_numbers(f"--{name.replace('_', '-')}", given) if option.kind == "numbers" else given


def kept(read: dict[str, Any], show: str, *, packed: bool = False) -> dict[str, Any]:
    """Return options of reading with which the columns that are shown are kept; a packed graph has its columns."""
    names = list(dict.fromkeys([*split_names(show), *read.get("keep", [])]))
    return read if packed or not names else read | {"keep": names}


def check_format(name: str) -> Any:
    """Return the value of --format, or raise if it is none."""
    if name not in ("csv", "parquet"):
        raise SettingError(f"--format must be csv or parquet; got {name!r}")
    return name


def split_names(text: str) -> list[str]:
    """Read names that are separated by commas.

    >>> split_names("a, b,")
    ['a', 'b']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_pairs(option: str, text: str) -> dict[str, str]:
    """Read the value of an option that holds pairs of names, such as a=b,c=d.

    >>> parse_pairs("--rename", "a=b, c=d")
    {'a': 'b', 'c': 'd'}
    """
    pairs = [name.split("=") for name in split_names(text)]
    if wrong := [pair for pair in pairs if len(pair) != 2 or not all(part.strip() for part in pair)]:
        raise SettingError(f"{option} must be pairs such as a=b, separated by commas; got {'='.join(wrong[0])!r}")
    return {left.strip(): right.strip() for left, right in pairs}


def parse_numbers(option: str, text: str) -> dict[str, float]:
    """Read the value of an option that holds names and numbers, such as a=1,b=0.5."""
    pairs = parse_pairs(option, text)
    try:
        return {name: float(value) for name, value in pairs.items()}
    except ValueError as problem:
        raise SettingError(f"{option} must hold numbers, such as text=2; got {text!r}") from problem


def parse_value(text: str, default: object) -> Any:
    """Read a setting's text as the type of its default. A text that cannot be read so is returned as it is.

    >>> parse_value("0.1,0.2", (0.5,)), parse_value("7", None), parse_value("many", 1000)
    ((0.1, 0.2), 7, 'many')
    """
    if isinstance(default, tuple):
        return tuple(parse_value(item, 0.0) for item in split_names(text.strip("[]()")))
    if default is None:  # such a setting is a whole number or None
        return None if text.lower() == "none" else parse_value(text, 0)
    default_type = type(default)
    try:
        return default_type(text) if default_type in (int, float) else text
    except ValueError:
        return text


def read_toml(path: Path) -> dict[str, Any]:
    """Read the file of a --config option."""
    if path.exists() and not path.is_file():
        raise SettingError(f"--config: {printable(path)} is a folder, a pipe or a device; give a file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows' editors write a mark
    except OSError as problem:
        raise SettingError(f"--config: cannot read {printable(path)}: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:  # of TOML, of UTF-8, of too many digits, of depth
        raise SettingError(
            f"--config: {printable(path)} is not TOML: {problem}; write lines such as epochs = 500, in UTF-8"
        ) from problem


NOT_LISTED = ("random_state", "device")  # the options --seed and --device stand for these


def read_settings_file(path: Path | None) -> dict[str, Any]:
    """Read settings from a TOML file; `seed` stands for `random_state`."""
    given = {} if path is None else read_toml(path)
    return {
        "random_state" if name == "seed" else name.replace("-", "_"): tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
    }


def parse_settings(method: str, arguments: Iterable[str], declared: Sequence[str]) -> dict[str, Any]:
    """Read arguments such as `--epochs 500` or `--links=none` as settings of a method.

    Args:
        method: its name in the registry.
        arguments: what the command line has beyond the options that the command declares.
        declared: those options, to suggest one where an argument is misspelt.
    """
    from recoslip.learning.methods import detector

    model = detector(method)
    defaults = model.get_params()
    settings: dict[str, Any] = {}
    remaining = iter(arguments)
    for argument in remaining:
        option, has_value, value = argument.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or name not in defaults:
            if option.startswith("--") and (others := _methods_with(name)):
                raise SettingError(
                    f"{option} is no setting of {model.name}; choose a method that has it by --method: "
                    f"{', '.join(others)}"
                )
            known = [*declared, *map(_option, defaults)]
            raise SettingError(f"no option {option!r}{nearest(option, known)}; see recoslip detect --help")
        value = value if has_value else next(remaining, "")
        if not value:
            raise SettingError(f"{option} needs a value")
        settings[name] = parse_value(value, defaults[name])
    return settings


def _methods_with(setting: str) -> list[str]:
    """Name the methods that have a setting, of those that can be used here."""
    from recoslip.learning.methods import DETECTORS

    found = []
    for name, method in DETECTORS.items():
        with suppress(ImportError, MissingExtra):
            if setting in method().get_params() and setting not in NOT_LISTED:
                found.append(name)
    return found


def print_settings_of_methods() -> None:
    """Print the settings of every method with their defaults, those of one class together."""
    from recoslip.learning.methods import DETECTORS

    names: dict[str, list[str]] = {}
    for name, method in DETECTORS.items():
        names.setdefault(method.kind.name, []).append(name)
    for name, own in names.items():
        stdout.print(f" [bold]Settings of {', '.join(own)}[/bold] and their defaults", highlight=False)
        defaults = DETECTORS[name]().get_params().items()
        settings = [f"{_option(each)} {_default(value)}" for each, value in defaults if each not in NOT_LISTED]
        stdout.print(Padding(Columns(settings, padding=(0, 3)), (0, 1, 1, 3)), highlight=False)


def _option(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _default(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
