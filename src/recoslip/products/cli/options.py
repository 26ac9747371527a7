"""Options that several commands have; settings of a method, from --config and options that no command declares."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.columns import Columns
from rich.padding import Padding

from recoslip.base.errors import SettingError, nearest
from recoslip.data.options import Option, declared
from recoslip.products.cli.messages import stdout
from recoslip.products.cli.option_values import parse_numbers, parse_value, read_toml, split_names

if TYPE_CHECKING:
    from recoslip.learning.base import Detector

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


NOT_LISTED = ("random_state", "device")  # the options --seed and --device stand for these


def read_settings_file(path: Path | None) -> dict[str, Any]:
    """Read settings from a TOML file; `seed` stands for `random_state`."""
    if path is None:
        return {}
    renamed = {key.replace("-", "_"): value for key, value in read_toml(path).items()}
    return {
        "random_state" if key == "seed" else key: tuple(value) if isinstance(value, list) else value
        for key, value in renamed.items()
    }


def parse_settings(method: str, arguments: Iterable[str], declared: Sequence[str]) -> dict[str, Any]:
    """Read arguments such as `--epochs 500` or `--links=none` as settings of a method.

    Args:
        method: its name in the registry.
        arguments: what the command line has beyond the options that the command declares.
        declared: those options, to suggest one where an argument is misspelt.
    """
    from recoslip.learning.methods import detector

    defaults = detector(method).get_params()
    settings: dict[str, Any] = {}
    remaining = iter(arguments)
    for argument in remaining:
        option, has_value, value = argument.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or name not in defaults:
            known = [*declared, *map(_option, defaults)]
            raise SettingError(f"no option {option!r}{nearest(option, known)}; see recoslip detect --help")
        if not has_value:
            value = next(remaining, "")
        if not value:
            raise SettingError(f"{option} needs a value")
        settings[name] = parse_value(value, defaults[name])
    return settings


def print_settings_of_methods() -> None:
    """Print the settings of every method with their defaults."""
    for names, model in _implementations():
        stdout.print(f" [bold]Settings of {', '.join(names)}[/bold] and their defaults", highlight=False)
        settings = [
            f"{_option(name)} {_default(value)}" for name, value in model.get_params().items() if name not in NOT_LISTED
        ]
        stdout.print(Padding(Columns(settings, padding=(0, 3)), (0, 1, 1, 3)), highlight=False)


def _implementations() -> Iterator[tuple[list[str], Detector]]:
    """Yield each class of detectors, built with its defaults, and the names of the methods that it implements."""
    from recoslip.learning.methods import DETECTORS

    methods_by_class: dict[str, list[str]] = {}
    for name, method in DETECTORS.items():
        methods_by_class.setdefault(method.kind.name, []).append(name)
    for name, names in methods_by_class.items():
        yield names, DETECTORS[name]()


def _option(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _default(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
