"""A column of times and a first time -> which rows are target; times are compared as instants."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.base.errors import TableError
from recoslip.data.options import Since

TEXTS = (pl.String, pl.Categorical, pl.Enum)
Order: TypeAlias = Literal["day", "month"]  # which of them comes first in 02/03/2007

MICROSECONDS_PER_DAY = 86_400_000_000
MOST_DAYS = 2**63 // MICROSECONDS_PER_DAY  # before and after 1970, which can be compared
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_NUMBERS = [f"{number:02}" for number in range(1, 13)]
_WORD = r"(?<month>(?i:" + "|".join(_MONTHS) + r")[A-Za-z]*)\.?"
_DAY = r"(?<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_REST = r"(?<year>[0-9]{4})(?<rest>(?:[T ].*)?)$"
_SLASHES = r"^\s*(?<a>[0-9]{1,2})/(?<b>[0-9]{1,2})/" + _REST
_SPELLINGS = (  # each with a day, a month and a year
    r"^\s*(?<day>[0-9]{1,2})\.(?<month>[0-9]{1,2})\." + _REST,
    rf"^\s*{_WORD} {_DAY},? {_REST}",
    rf"^\s*{_DAY}\.?[ -]{_WORD},?[ -]{_REST}",
    r"^\s*(?<year>[0-9]{4})/(?<month>[0-9]{1,2})/(?<day>[0-9]{1,2})(?<rest>(?:[T ].*)?)$",
    rf"^\s*{_WORD},? (?<year>[0-9]{{4}})(?<day>)(?<rest>)$",  # a month is its first day
    r"^\s*(?<year>[0-9]{4})-(?<month>0?[1-9]|1[0-2])(?<day>)(?<rest>)$",
)
_SHORT_YEAR = r"^\s*[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2}(?:[T ]|$)"
_TEXT = (
    r"^(?<date>\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](?<clock>\d{2}:\d{2})(?::(?<second>\d{2})(?:[.,](?<fraction>\d+))?)?"
    r" ?(?<zone>[Zz]|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?)?$"
)


class Times(NamedTuple):
    """Times in microseconds since 1970: in UTC if they have an offset, else on a clock that is not known."""

    ticks: NDArray[np.int64]
    has_offset: bool

    def ends(self) -> list[str]:
        """Return the first and the last time as text that `read_times` reads, with Z where they have an offset."""
        texts = np.datetime_as_string(self._ends())
        return [f"{text}".removesuffix(".000000") + "Z" * self.has_offset for text in texts]

    def __str__(self) -> str:
        zone = {"unit": "s", "timezone": "UTC"} if self.has_offset else {"unit": "auto"}
        return " to ".join(np.datetime_as_string(self._ends(), **zone))  # type: ignore[call-overload]

    def _ends(self) -> NDArray[np.datetime64]:
        return np.array([self.ticks.min(), self.ticks.max()]).view("datetime64[us]")


def slash_order(texts: pl.Series, name: str) -> Order | None:
    """Return which part of dates such as 31/12/2006 comes first: the day is the one that is above 12 somewhere.

    It is None where there are no such dates. Raise if no value tells, or if two contradict each other.

    Args:
        texts: the texts; others than such dates are passed over.
        name: what they are, for messages.
    """
    parts = texts.str.extract_groups(_SLASHES).struct.unnest()
    above = [parts[side].cast(pl.Int64).fill_null(0) > 12 for side in "ab"]
    day_first, month_first = above[0] & ~above[1], above[1] & ~above[0]
    dates = texts.filter(parts["year"].is_not_null())
    if not len(dates):
        return None
    if day_first.any() and month_first.any():
        raise TableError(
            f"the dates of {name} are in two orders ({texts.filter(day_first)[0]!r} and "
            f"{texts.filter(month_first)[0]!r}); write all of them as 2007-01-31"
        )
    if not day_first.any() and not month_first.any():
        readings = [year_first(dates[:1], order)[0].strip() for order in ("day", "month")]
        raise TableError(
            f"a date of {name}, {dates[0]!r}, may be {readings[0]} or {readings[1]}, and no value tells which; write "
            "dates as 2007-01-31 (the year first) or 31.01.2007 (the day first)"
        )
    return "day" if day_first.any() else "month"


def target_from_times(column: pl.Series, since: Since | None) -> NDArray[np.bool_]:
    """Return which rows are target: those with a time from `since` on."""
    name, is_numeric = column.name, column.dtype.is_numeric()
    span: object
    try:
        if is_numeric:
            is_target, span = np.asarray(column >= _number(column, since)), f"{column.min()!s} to {column.max()!s}"
        else:
            span, first = _common_times(column, since)
            is_target = span.ticks >= first.ticks[0]
    except TableError:
        raise
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as problem:
        expected = "a number" if is_numeric else "a date such as 2007-01-31"
        raise TableError(f"the time column {name!r} needs {expected} to divide it; got since={since!r}") from problem
    if is_target.all() or not is_target.any():
        raise TableError(f"dividing {name!r} at {since} leaves one domain empty; it runs from {span}")
    return is_target


def _number(column: pl.Series, since: Any) -> int | float:
    """Return `since` as a number: a whole one where the column is, because large ones are rounded as floats."""
    if column.dtype == pl.Int64 and isinstance(since, int | str):
        with suppress(ValueError):
            whole = int(since)
            return whole if -(2**63) <= whole < 2**63 else float(whole)
    return float(since)


def _common_times(column: pl.Series, since: Since | None) -> tuple[Times, Times]:
    """Return the times of a column, and the one of `since`, which have offsets both, or neither."""
    texts = {}
    if column.dtype in TEXTS and column.cast(pl.String).str.contains("/").any():
        texts[f"the time column {column.name!r}"] = column.cast(pl.String).alias("")
    if isinstance(since, str) and "/" in since:
        texts["since"] = pl.Series([since])
    order = slash_order(pl.concat(texts.values()), " and ".join(texts)) if texts else None
    times, first = read_times(column, order), read_instant(since, order)
    if times.has_offset and not first.has_offset:
        raise TableError(
            f"the time column {column.name!r} holds times with an offset from UTC, and since={since} has none; "
            f"write it with the offset that is meant, such as {first.ends()[0]}+01:00, or {first.ends()[0]}Z for UTC"
        )
    if first.has_offset and not times.has_offset:
        raise TableError(
            f"the time column {column.name!r} holds times without an offset from UTC, and since={since} has one; "
            "write since as the column's clock shows it, without an offset, or give every time of the column an "
            "offset, such as 2007-01-31T00:00+01:00"
        )
    return times, first


def year_first(texts: pl.Series, order: Order | None) -> pl.Series:
    """Write dates such as 31.12.2006, December 31, 2006, and 31/12/2006 in the given order as 2006-12-31.

    A month is its first day. Other texts stay as they are.

    >>> year_first(pl.Series(["31.1.2007", "1/31/2007 12:00", "2007-01-31", "January 31, 2007"]), "month").to_list()
    ['2007-01-31', '2007-01-31 12:00', '2007-01-31', '2007-01-31']
    >>> year_first(pl.Series(["2007/1/31", "Jan 2007", "2007-1"]), None).to_list()
    ['2007-01-31', '2007-01-01', '2007-01-01']
    """
    first, second = ("month", "day") if order == "month" else ("day", "month")
    slashes = _SLASHES.replace("<a>", f"<{first}>").replace("<b>", f"<{second}>")
    for pattern in (*_SPELLINGS, slashes):
        parts = texts.str.extract_groups(pattern).struct.unnest()
        month = parts["month"].str.to_lowercase().str.slice(0, 3).replace(_MONTHS, _NUMBERS).str.zfill(2)
        day = parts["day"].replace("", "1").str.zfill(2)
        written = parts["year"] + "-" + month + "-" + day + parts["rest"]
        texts = written.zip_with(written.is_not_null(), texts)
    return texts


def looks_like_date(texts: pl.Series) -> pl.Series:
    """Return for each text whether it begins with a date, such as 2007-01-31, 31.1.2007 or January 31, 2007."""
    return year_first(texts, "day").str.contains(r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ]|$)")


def read_times(column: pl.Series, order: Order | None = None) -> Times:
    """Read a column of dates, timestamps or text such as 2007-01-31T12:00+01:00, 31.01.2007 or January 31, 2007.

    Args:
        column: the column.
        order: which part of dates with slashes comes first, by `slash_order`.
    """
    dtype = column.dtype
    if dtype in TEXTS:
        return _read_texts(column.cast(pl.String), order)
    if dtype == pl.Date:
        days = column.to_physical().to_numpy().astype(np.int64).clip(-MOST_DAYS, MOST_DAYS)
        return Times(days * MICROSECONDS_PER_DAY, False)
    if isinstance(dtype, pl.Datetime):  # with a time zone, polars holds UTC
        return Times(column.dt.cast_time_unit("us").to_physical().to_numpy(), dtype.time_zone is not None)
    raise TableError(f"the time column {column.name!r} must hold numbers or dates such as 2007-01-31; got {dtype}")


def read_instant(since: Since | None, order: Order | None = None) -> Times:
    """Read one time: a date, a datetime, a year, or text in the spellings of a column. Raise ValueError if it is none.

    >>> str(read_instant("2020"))
    '2020-01-01 to 2020-01-01'
    """
    if isinstance(since, date):  # a datetime is one
        return read_times(pl.Series("since", [since]))
    text = str(since).strip()
    text = f"{text}-01-01" if len(text) == 4 and text.isdigit() else year_first(pl.Series([text]), order)[0].strip()
    microseconds, has_offset = _parse(pl.Series([text]))
    if microseconds.null_count():
        return read_instant(datetime.fromisoformat(text))  # which reads other spellings, such as 20070131
    return Times(microseconds.to_numpy(), bool(has_offset[0]))


def _read_texts(column: pl.Series, order: Order | None) -> Times:
    microseconds, has_offset = _parse(year_first(column, order))
    if (unreadable := microseconds.is_null()).any():
        text = column.filter(unreadable)[0]
        is_short = pl.Series([text]).str.contains(_SHORT_YEAR)[0]
        raise TableError(
            f"the time column {column.name!r} must hold numbers or dates such as 2007-01-31; got {text!r}"
            + ("; write years with four digits, such as 2007" if is_short else "")
        )
    if has_offset.any() and not has_offset.all():
        raise TableError(
            f"the time column {column.name!r} holds times with an offset from UTC ({column.filter(has_offset)[0]!r}) "
            f"beside times without ({column.filter(~has_offset)[0]!r}, in {(~has_offset).sum()} rows); "
            "give every time an offset, such as 2007-01-31T00:00+01:00 or 2007-01-31T00:00Z, or none"
        )
    return Times(microseconds.to_numpy(), bool(has_offset.any()))


def _parse(texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return microseconds since 1970, in UTC where the text has an offset; null for other texts; and which have one."""
    fields = texts.str.strip_chars().str.extract_groups(_TEXT).struct.unnest()
    clock = fields["date"] + " " + fields["clock"].fill_null("00:00") + ":" + fields["second"].fill_null("00")
    seconds = clock.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False).to_physical()
    fraction = fields["fraction"].fill_null("0").str.slice(0, 6).str.pad_end(6, "0").cast(pl.Int64)
    zone = fields["zone"].str.replace("^(?:[Zz]|UTC|GMT)$", "+00:00")
    hours = zone.str.slice(1, 2).cast(pl.Int64)
    minutes = zone.str.slice(3).str.strip_chars_start(":").replace("", "00").cast(pl.Int64)
    is_offset = zone.is_null() | ((hours < 24) & (minutes < 60))
    sign = pl.select(pl.when(zone.str.starts_with("-")).then(-1).otherwise(1)).to_series()
    offset = (sign * (60 * hours + minutes) * 60_000_000).fill_null(0)
    valid = seconds.is_not_null() & is_offset
    microseconds = seconds + fraction - offset
    return microseconds.zip_with(valid, pl.Series([None], dtype=pl.Int64)), zone.is_not_null()


def time_numbers(times: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return times as numbers that are in the same order."""
    if np.issubdtype(times.dtype, np.number):
        return times.astype(np.float64)
    if np.issubdtype(times.dtype, np.datetime64):
        return times.astype("datetime64[us]").astype(np.int64).astype(np.float64)
    column = pl.Series("time", times.tolist(), strict=False)
    if column.dtype == pl.String and (numbers := column.cast(pl.Float64, strict=False)).null_count() == 0:
        return numbers.to_numpy()
    order = slash_order(column, "the time column") if column.dtype == pl.String else None
    return np.asarray(read_times(column, order).ticks, dtype=np.float64)
