"""A column of times and a first time -> which of the times are not before it, compared as instants."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.base.errors import TableError
from recoslip.data.options import Since

Order: TypeAlias = Literal["day", "month"]  # which of them comes first in 02/03/2007

_DOTS = r"^\s*(?<a>[0-9]{1,2})\.(?<b>[0-9]{1,2})\.(?<year>[0-9]{4})(?<rest>.*)$"
_SLASHES = _DOTS.replace(r"\.", "/")
_TEXT = (
    r"^(?<date>\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](?<clock>\d{2}:\d{2})(?::(?<second>\d{2})(?:[.,](?<fraction>\d+))?)?"
    r" ?(?<zone>[Zz]|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?)?$"
)
_TICKS_PER_MICROSECOND = {
    "D": Fraction(1, 86_400_000_000),
    "ms": Fraction(1, 1000),
    "us": Fraction(1),
    "ns": Fraction(1000),
}


class Times(NamedTuple):
    """Times as whole numbers of a unit since 1970: in UTC if they have an offset, else on a clock that is not known."""

    ticks: NDArray[np.int64]
    unit: str  # "D", "ms", "us" or "ns", as numpy calls them
    has_offset: bool

    def ends(self) -> list[str]:
        """Return the first and the last time as text that `read_times` reads, with Z where they have an offset."""
        unit = "D" if self.unit == "D" else "us"
        first_and_last = np.array([self.ticks.min(), self.ticks.max()]).view(f"datetime64[{self.unit}]")
        texts = np.datetime_as_string(first_and_last.astype(f"datetime64[{unit}]"))
        return [f"{text}".removesuffix(".000000") + "Z" * self.has_offset for text in texts]

    def __str__(self) -> str:
        ends = np.array([self.ticks.min(), self.ticks.max()]).view(f"datetime64[{self.unit}]")
        if self.has_offset:
            return " to ".join(np.datetime_as_string(ends, unit="s", timezone="UTC"))
        return " to ".join(np.datetime_as_string(ends, unit="auto"))


class Instant(NamedTuple):
    """A time in microseconds since 1970: in UTC if it has an offset, else on a clock that is not known."""

    microseconds: int
    has_offset: bool
    clock: str  # the time as its own clock shows it, without the offset


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


def common_order(column: pl.Series, since: Since | None) -> Order | None:
    """Return which part of dates with slashes comes first, by the values of a column and of `since` together."""
    texts = {}
    if column.dtype in (pl.String, pl.Categorical, pl.Enum) and column.cast(pl.String).str.contains("/").any():
        texts[f"the time column {column.name!r}"] = column.cast(pl.String).alias("")
    if isinstance(since, str) and "/" in since:
        texts["since"] = pl.Series([since])
    return slash_order(pl.concat(texts.values()), " and ".join(texts)) if texts else None


def year_first(texts: pl.Series, order: Order | None) -> pl.Series:
    """Write dates such as 31.12.2006, and 31/12/2006 in the given order, as 2006-12-31; leave other texts as they are.

    >>> year_first(pl.Series(["31.1.2007", "1/31/2007 12:00", "2007-01-31"]), "month").to_list()
    ['2007-01-31', '2007-01-31 12:00', '2007-01-31']
    """
    for pattern, day, month in ((_DOTS, "a", "b"), (_SLASHES, *(("b", "a") if order == "month" else ("a", "b")))):
        parts = texts.str.extract_groups(pattern).struct.unnest()
        written = parts["year"] + "-" + parts[month].str.zfill(2) + "-" + parts[day].str.zfill(2) + parts["rest"]
        texts = written.zip_with(written.is_not_null(), texts)
    return texts


def read_times(column: pl.Series, order: Order | None = None) -> Times:
    """Read a column of dates, timestamps or text such as 2007-01-31T12:00+01:00, 31.01.2007 or 1/31/2007.

    Args:
        column: the column.
        order: which part of dates with slashes comes first, by `slash_order`.
    """
    dtype = column.dtype
    if dtype in (pl.Categorical, pl.Enum):
        column, dtype = column.cast(pl.String), pl.String()
    if dtype == pl.String:
        return _read_texts(column, order)
    if dtype == pl.Date:
        return Times(column.to_physical().to_numpy().astype(np.int64), "D", False)
    if isinstance(dtype, pl.Datetime):  # with a time zone, polars holds UTC
        return Times(column.to_physical().to_numpy(), dtype.time_unit, dtype.time_zone is not None)
    raise TableError(f"the time column {column.name!r} must hold numbers or dates such as 2007-01-31; got {dtype}")


def read_instant(since: Since, order: Order | None = None) -> Instant:
    """Read one time: a date, a datetime, or text in the spellings of a column. Raise ValueError if it is none."""
    if not isinstance(since, date):
        text = year_first(pl.Series([str(since)]), order)[0].strip()
        try:
            since = datetime.fromisoformat(text)
        except ValueError:  # text of a column may be longer: 2007-01-31 00:00:00 UTC
            microseconds, has_offset = _parse(pl.Series([text]))
            if microseconds.null_count():
                raise
            since = datetime(1970, 1, 1, tzinfo=UTC if has_offset[0] else None) + timedelta(
                microseconds=microseconds[0]
            )
    if not isinstance(since, datetime):
        since = datetime(since.year, since.month, since.day)
    aware = since.utcoffset() is not None
    epoch = datetime(1970, 1, 1, tzinfo=UTC if aware else None)
    return Instant((since - epoch) // timedelta(microseconds=1), aware, since.replace(tzinfo=None).isoformat())


def not_before(times: Times, first: Instant, name: str) -> NDArray[np.bool_]:
    """Return which times of the column `name` are not before `first`; both must have offsets, or neither."""
    if times.has_offset and not first.has_offset:
        raise TableError(
            f"the time column {name!r} holds times with an offset from UTC, and since={first.clock} has none; "
            f"write it with the offset that is meant, such as {first.clock}+01:00, or {first.clock}Z for UTC"
        )
    if first.has_offset and not times.has_offset:
        raise TableError(
            f"the time column {name!r} holds times without an offset from UTC, and since has one; "
            f"write since as the column's clock shows it, such as {first.clock}, "
            "or give every time of the column an offset, such as 2007-01-31T00:00+01:00"
        )
    threshold = math.ceil(first.microseconds * _TICKS_PER_MICROSECOND[times.unit])
    return np.asarray(times.ticks >= threshold)


def _read_texts(column: pl.Series, order: Order | None) -> Times:
    microseconds, has_offset = _parse(year_first(column, order))
    if (unreadable := microseconds.is_null()).any():
        raise TableError(
            f"the time column {column.name!r} must hold numbers or dates such as 2007-01-31; "
            f"got {column.filter(unreadable)[0]!r}"
        )
    if has_offset.any() and not has_offset.all():
        raise TableError(
            f"the time column {column.name!r} holds times with an offset from UTC ({column.filter(has_offset)[0]!r}) "
            f"beside times without ({column.filter(~has_offset)[0]!r}, in {(~has_offset).sum()} rows); "
            "give every time an offset, such as 2007-01-31T00:00+01:00 or 2007-01-31T00:00Z, or none"
        )
    return Times(microseconds.to_numpy(), "us", bool(has_offset.any()))


def _parse(texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return microseconds since 1970, in UTC where the text has an offset; null for other texts; and which have one."""
    fields = texts.str.extract_groups(_TEXT).struct.unnest()
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
