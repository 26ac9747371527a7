"""Options that several commands have, their texts as values, and settings of a method: from --config and options."""

import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.columns import Columns
from rich.padding import Padding

from recoslip.base.errors import MissingExtra, SettingError, nearest
from recoslip.base.files import printable
from recoslip.data.options import Option, declared
from recoslip.products.cli.console import stdout

SEVERAL = ("names", "numbers", "pairs")  # kinds of options that hold several values
NOT_READ = ("category",)  # of use in Python and in the bench alone
NOT_LISTED = ("random_state", "device")  # the options --seed and --device stand for these


def option(text: str, *names: str, **more: Any) -> Any:
    """Declare an option with its help; without names, it is called like its parameter."""
    return typer.Option(*names, help=text, **more)


def argument(text: str, **more: Any) -> Any:
    """Declare an argument with its help."""
    return typer.Argument(help=text, **more)


Quiet = Annotated[bool, option("Print errors only.", "--quiet", "-q")]
Json = Annotated[bool, option("Print the result as JSON and nothing else.", "--json")]
Force = Annotated[bool, option("Replace an earlier result in the output folder.", "--force")]
Out = Annotated[Path, option("Folder to write the results to.")]
ScoresFormat = Annotated[Literal["csv", "parquet"], option("Format of the table of scores.", "--format")]
Show = Annotated[str, option("Columns to show beside the nodes in the report, separated by commas.")]
MaxFpr = Annotated[float | None, option("Fraction of the known target nodes that may be listed; default: 0.01.")]
Fdr = Annotated[float | None, option("List nodes by this false-discovery rate instead of --max-fpr.")]
Title = Annotated[str | None, option("Title of the report.")]
Device = Annotated[str | None, option("Device to compute on: auto, cpu or cuda; default: auto.")]
Align = Annotated[
    Literal["auto", "on", "off"],
    option("Bring the target's features to the source's location and scale; auto: where that makes them comparable."),
]
UseRep = Annotated[str | None, option("Of cells: the representation in obsm to use, or X; default: X_pca.")]
AllowLeak = Annotated[str, option("Columns that may say the same as the domain, separated by commas.")]


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
            for name, (_, declaration) in chosen.items():
                given = values.pop(name)
                if given not in (None, []) and (given is not False or chosen[name][0].default is None):
                    read[name] = _parse(declaration, name, given)
            return command(**values, read=read)

        call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*own, *(_parameter(*each) for each in chosen.values())]
        )
        return call

    return decorate


def _parameter(own: Field[Any], declaration: Option) -> inspect.Parameter:
    """Return the parameter of an option; names may be separated by commas, or each given with an option of its own."""
    text = re.sub(r"`(\w+)`", r"--\1", declaration.help)
    text += " Separated by commas." if declaration.kind in SEVERAL else ""
    text += f" Default: {own.default}." if own.default and isinstance(own.default, str) else ""
    kind: Any = {"switch": bool, "count": int, **dict.fromkeys(SEVERAL, list[str])}.get(declaration.kind, str)
    default = own.default if declaration.kind == "switch" else None
    is_either = declaration.kind == "switch" and default is None  # yes, no, or as it is by default
    flag = _flag(own.name) + (f"/{_flag(f'no_{own.name}')}" if is_either else "")
    kind = kind if default is False else kind | None
    shown = option(text, flag, rich_help_panel="Reading the tables", show_default=False)
    return inspect.Parameter(
        own.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown]
    )


def _parse(declaration: Option, name: str, given: Any) -> Any:
    if declaration.kind not in SEVERAL:
        return given
    text = ",".join(given)
    if declaration.kind == "names":
        return split_names(text)
    return parse_pairs(_flag(name), text) if declaration.kind == "pairs" else parse_numbers(_flag(name), text)


def kept(read: dict[str, Any], show: str, *, packed: bool = False) -> dict[str, Any]:
    """Return options of reading with which the columns that are shown are kept; a packed graph has its columns."""
    names = list(dict.fromkeys([*split_names(show), *read.get("keep", [])]))
    return read if packed or not names else read | {"keep": names}


def split_names(text: str) -> list[str]:
    """Read names that are separated by commas.

    >>> split_names("a, b,")
    ['a', 'b']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_pairs(name: str, text: str) -> dict[str, str]:
    """Read the value of an option that holds pairs of names, such as a=b,c=d.

    >>> parse_pairs("--rename", "a=b, c=d")
    {'a': 'b', 'c': 'd'}
    """
    pairs = [pair.split("=") for pair in split_names(text)]
    if wrong := [pair for pair in pairs if len(pair) != 2 or not all(part.strip() for part in pair)]:
        raise SettingError(f"{name} must be pairs such as a=b, separated by commas; got {'='.join(wrong[0])!r}")
    return {left.strip(): right.strip() for left, right in pairs}


def parse_numbers(name: str, text: str) -> dict[str, float]:
    """Read the value of an option that holds names and numbers, such as a=1,b=0.5."""
    pairs = parse_pairs(name, text)
    try:
        return {left: float(right) for left, right in pairs.items()}
    except ValueError as problem:
        raise SettingError(f"{name} must hold numbers, such as text=2; got {text!r}") from problem


def parse_value(text: str, default: object) -> Any:
    """Read a setting's text as the type of its default. A text that cannot be read so is returned as it is.

    >>> parse_value("0.1,0.2", (0.5,)), parse_value("7", None), parse_value("many", 1000)
    ((0.1, 0.2), 7, 'many')
    """
    if isinstance(default, tuple):
        return tuple(parse_value(item, 0.0) for item in split_names(text.strip("[]()")))
    if default is None:  # such a setting is a whole number or None
        return None if text.lower() == "none" else parse_value(text, 0)
    kind: Any = type(default)
    try:
        return kind(text) if kind in (int, float) else text
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
    for given in remaining:
        flag, has_value, value = given.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or name not in defaults:
            meant = nearest(flag, [*declared, *map(_flag, defaults)])
            elsewhere = _elsewhere(flag, name, model.name, certain=bool(meant)) if flag.startswith("--") else ""
            raise SettingError(elsewhere or f"no option {flag!r}{meant}; see recoslip detect --help")
        value = value if has_value else next(remaining, "")
        if not value:
            raise SettingError(f"{flag} needs a value")
        settings[name] = parse_value(value, defaults[name])
    return settings


def _elsewhere(flag: str, setting: str, method: str, *, certain: bool) -> str:
    """Say which methods have a setting that this one has not, or unless that must be `certain`, which may have it."""
    by_method, missing = _defaults()
    if having := [name for name, defaults in by_method.items() if setting in defaults]:
        return f"{flag} is no setting of {method}; choose a method that has it by --method: {', '.join(having)}"
    if certain or not missing:
        return ""
    return f"{flag} is no setting of {method}; {', '.join(missing)} may have it: {next(iter(missing.values()))}"


def _defaults() -> tuple[dict[str, dict[str, Any]], dict[str, MissingExtra]]:
    """Return the settings of every method that can be used here, and why others cannot."""
    from recoslip.learning.methods import DETECTORS

    found, missing = {}, {}
    for name, method in DETECTORS.items():
        try:
            params = method().get_params()
        except MissingExtra as problem:
            missing[name] = problem
        else:
            found[name] = {setting: value for setting, value in params.items() if setting not in NOT_LISTED}
    return found, missing


def print_settings_of_methods() -> None:
    """Print the settings of every method with their defaults, those of one class together."""
    from recoslip.learning.methods import DETECTORS

    by_method, missing = _defaults()
    of_class: dict[str, list[str]] = {}
    for name in by_method:
        of_class.setdefault(DETECTORS[name].kind.name, []).append(name)
    for first, names in of_class.items():
        stdout.print(f" [bold]Settings of {', '.join(names)}[/bold] and their defaults", highlight=False)
        settings = [f"{_flag(name)} {_written(value)}" for name, value in by_method[first].items()]
        stdout.print(Padding(Columns(settings, padding=(0, 3)), (0, 1, 1, 3)), highlight=False)
    if missing:
        said = f" Settings of {', '.join(missing)} are not known here: {next(iter(missing.values()))}"
        stdout.print(said, highlight=False, markup=False)


def _flag(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _written(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
