"""--config and the options that no command declares -> settings of a method."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.columns import Columns
from rich.padding import Padding

from recoslip.console.messages import stdout
from recoslip.console.option_values import parse_value, read_toml
from recoslip.errors import SettingError, nearest

if TYPE_CHECKING:
    from recoslip.detectors.base import Detector

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
    from recoslip.detectors.registry import detector

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
    from recoslip.detectors.registry import DETECTORS

    methods_by_class: dict[str, list[str]] = {}
    for name, method in DETECTORS.items():
        methods_by_class.setdefault(method.kind.name, []).append(name)
    for name, names in methods_by_class.items():
        yield names, DETECTORS[name]()


def _option(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _default(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
