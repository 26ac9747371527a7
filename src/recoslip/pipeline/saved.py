"""The folder of an earlier run -> its table of scores and its summary, or an error that names the damage.

Tables that people open in a spreadsheet are written so that none of their texts is run as a formula.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from recoslip.base.errors import RecoslipError
from recoslip.base.files import printable, put_right
from recoslip.base.json_files import read_json

# The columns that every table of scores has, and group, which results without groups lack.
COLUMNS = {
    "id": pl.String,
    "domain": pl.String,
    "score": pl.Float64,
    "p_value": pl.Float64,
    "listed": pl.Boolean,
    "group": pl.Int64,
}
OPTIONAL = ("group",)
EXPECTED = {
    "id": "a name that no other node has",
    "domain": "source or target",
    "score": "a finite number",
    "p_value": "a number, or empty",
    "listed": "true or false",
    "group": "a whole number, or empty",
}
NAMES = ("scores.csv", "scores.parquet")
REVIEW = "review.sqlite"  # verdicts on a run's nodes, in its folder
# Where a cell of a spreadsheet begins in a text: at its start, and after what may separate cells or rows there, for a
# spreadsheet may split a file of commas at its own list separator. What then is taken for a formula gets an apostrophe,
# and so does what begins with an apostrophe, so that removing one at each such place restores every text.
FORMULA = r"^['=+\-@\t\r\n＝＋－＠]"
NUMBER = r"^[-+]?[0-9.]+$"
INNER_FORMULA = r"""([;\t\r\n])(['"=+\-@＝＋－＠])"""
INNER_APOSTROPHE = r"([;\t\r\n])'"

AGAIN = "run detect or score again, or take the folder from a backup"


def for_spreadsheets(table: pl.DataFrame) -> pl.DataFrame:
    """Put an apostrophe before what a spreadsheet would run as a formula, in texts and names of columns.

    Numbers stay as they are.

    >>> for_spreadsheets(pl.DataFrame({"+id": ["=1+1", "-7", "it's", "'", "x;=1"]})).to_dict(as_series=False)
    {"'+id": ["'=1+1", '-7', "it's", "''", "x;'=1"]}
    """
    return _with_texts(table, _escaped)


def from_spreadsheets(table: pl.DataFrame) -> pl.DataFrame:
    """Remove the apostrophes that `for_spreadsheets` put into a table.

    >>> from_spreadsheets(pl.DataFrame({"'+id": ["'=1+1", "-7", "it's", "''", "x;'=1"]})).to_dict(as_series=False)
    {'+id': ['=1+1', '-7', "it's", "'", 'x;=1']}
    """
    return _with_texts(table, _restored)


def _with_texts(table: pl.DataFrame, change: Callable[[pl.Expr], pl.Expr]) -> pl.DataFrame:
    """Change the texts of a table and the names of its columns."""
    names = pl.DataFrame({"name": pl.Series(table.columns, dtype=pl.String)}).select(change(pl.col("name")))
    changed = table.with_columns(change(pl.col(pl.String)))
    changed.columns = names["name"].to_list()
    return changed


def _escaped(text: pl.Expr) -> pl.Expr:
    is_formula = text.str.contains(FORMULA) & ~text.str.contains(NUMBER)
    inner = text.str.replace_all(INNER_FORMULA, "${1}'${2}")
    return pl.when(is_formula).then(inner.str.replace("^", "'")).otherwise(inner)


def _restored(text: pl.Expr) -> pl.Expr:
    return text.str.strip_prefix("'").str.replace_all(INNER_APOSTROPHE, "${1}")


def read_scores(folder: str | os.PathLike[str]) -> pl.DataFrame:
    """Read the table of scores that detect, demo or score wrote into a folder.

    Columns: id (text, whatever it was), domain ("source" or "target"), score, p_value (null for source nodes), listed,
    group (null for nodes that are not listed, and everywhere in results without groups), then all others of the file.
    The apostrophes that scores.csv has before what looks like a formula are removed. The order is the file's.
    """
    path = scores_file(_result_folder(folder))
    table = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)
    missing = [name for name in COLUMNS if name not in table.columns and name not in OPTIONAL]
    if missing:
        raise RecoslipError(
            f"{printable(path)} must have the columns {', '.join(COLUMNS)}; {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing; {AGAIN}"
        )
    return _typed(table, path)


def read_summary(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the summary that detect, demo or score wrote into a folder."""
    path = _result_folder(folder) / "summary.json"
    try:
        summary: dict[str, Any] = read_json(path)
    except FileNotFoundError as problem:
        raise RecoslipError(
            f"{printable(folder)} holds no summary.json; give a folder that recoslip detect, demo or score wrote"
        ) from problem
    except (OSError, ValueError) as problem:
        raise RecoslipError(f"{printable(path)} cannot be read: {problem}; {AGAIN}") from problem
    missing = [name for name in ("recoslip", "method") if not isinstance(summary.get(name), str)]
    if missing:
        raise RecoslipError(f"{printable(path)} does not say {missing[0]!r}: it is damaged or not recoslip's; {AGAIN}")
    return summary


def _result_folder(folder: str | os.PathLike[str]) -> Path:
    path = Path(folder).expanduser()
    put_right(path)
    if not path.is_dir():
        kind = "a file" if path.exists() else "not there"
        raise RecoslipError(
            f"{printable(folder)} is {kind}, expected a folder; give one that recoslip detect, demo or score wrote"
        )
    return path


def scores_file(folder: Path) -> Path:
    """Return the path of the table of scores in a folder."""
    present = [folder / name for name in NAMES if os.path.lexists(folder / name)]
    if not present:
        raise RecoslipError(
            f"{printable(folder)} holds no scores.csv or scores.parquet; give a folder that recoslip detect, demo or "
            "score wrote"
        )
    if len(present) > 1:
        raise RecoslipError(f"{printable(folder)} holds both {' and '.join(NAMES)}; remove the one that is not wanted")
    return present[0]


def _read_csv(path: Path) -> pl.DataFrame:
    """Read a CSV file; our columns as text first, so that one wrong cell can be named."""
    text: dict[str, type[pl.DataType]] = dict.fromkeys(COLUMNS, pl.String)
    try:
        with path.open("rb") as file:  # polars takes no path that is not UTF-8
            table = pl.read_csv(file, infer_schema_length=None, schema_overrides=text)
    except (OSError, UnicodeError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as problem:
        raise _unreadable(path, problem) from problem
    return from_spreadsheets(table)


def _read_parquet(path: Path) -> pl.DataFrame:
    """Read a Parquet file with Arrow; polars would abort the process at a damaged page."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with path.open("rb") as file:
            return pl.DataFrame(ParquetFile(file).read())
    except (OSError, ValueError, ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException) as problem:
        raise _unreadable(path, problem) from problem


def _unreadable(path: Path, problem: BaseException) -> RecoslipError:
    reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
    return RecoslipError(f"{printable(path)} cannot be read as {path.suffix[1:]}: {reason}; {AGAIN}")


def _typed(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Return the table with our columns first and of their types; raise with the first cell that is wrong."""
    if not table.height:
        raise RecoslipError(f"{printable(path)} holds no node; {AGAIN}")
    columns = {}
    for name, kind in COLUMNS.items():
        given = table[name] if name in table.columns else pl.Series([None] * table.height, dtype=kind)
        try:
            cast = _cast(given, kind)
        except pl.exceptions.PolarsError as problem:
            raise RecoslipError(f"{printable(path)}: {name} must be {EXPECTED[name]}; got {given.dtype}") from problem
        wrong = _wrong(name, cast, given)
        if wrong.any():
            row = int(wrong.arg_max() or 0)
            raise RecoslipError(
                f"{printable(path)}: {name} must be {EXPECTED[name]}; row {row + 1:,} has {given[row]!r}; {AGAIN}"
            )
        columns[name] = cast.fill_nan(None) if name == "p_value" else cast
    return table.drop(columns, strict=False).select(*(column.alias(name) for name, column in columns.items()), pl.all())


def _cast(column: pl.Series, kind: type[pl.DataType]) -> pl.Series:
    """Cast a column; null where that fails."""
    if kind == pl.Boolean:  # TRUE and FALSE after a spreadsheet saved the file
        words = column.cast(pl.String).str.to_lowercase()
        return words.replace_strict({"true": True, "false": False}, default=None, return_dtype=pl.Boolean)
    if kind == pl.Int64:  # 1.0 after pandas saved the file
        numbers = column.cast(pl.Float64, strict=False)
        return numbers.set(numbers != numbers.floor(), None).cast(kind, strict=False)
    return column.cast(kind, strict=False)


def _wrong(name: str, cast: pl.Series, given: pl.Series) -> pl.Series:
    """Return for each cell of a column whether it may not be there."""
    if name == "id":
        return cast.is_null() | cast.is_duplicated()
    if name == "domain":
        return ~cast.is_in(["source", "target"]).fill_null(False)
    if name == "score":
        return ~cast.is_finite().fill_null(False)
    return cast.is_null() & (given.is_not_null() | (name == "listed"))
