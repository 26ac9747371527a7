"""Times are compared as instants, whatever their offsets; a time with an offset is never compared with one without."""

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from recoslip import open_packed, pack, read_graph
from recoslip.base.errors import TableError

CUT = datetime(2007, 1, 31, tzinfo=timezone(timedelta(hours=1)))
OFFSETS = [-12, -9.5, -5, -1, 0, 1, 2, 5.75, 9, 14]  # hours
INSTANTS = [CUT + timedelta(minutes=10 * k - 1500, microseconds=-1 if k % 3 else 0) for k in range(300)]
EXPECTED = [instant >= CUT for instant in INSTANTS]


def clock(k: int) -> datetime:
    """The k-th instant on a clock of some offset."""
    return INSTANTS[k].astimezone(timezone(timedelta(hours=OFFSETS[k % len(OFFSETS)])))


def offset(time: datetime, style: int) -> str:
    minutes = int(time.utcoffset().total_seconds() // 60)
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    short = f"{sign}{hours:02d}" if rest == 0 else f"{sign}{hours:02d}{rest:02d}"
    utc = ["Z", " UTC", "+00:00"][style % 3]
    return utc if minutes == 0 else [f"{sign}{hours:02d}:{rest:02d}", short, f" {sign}{hours:02d}{rest:02d}"][style % 3]


def texts() -> list[str]:
    times = [clock(k) for k in range(300)]
    return [
        f"{time:%Y-%m-%d}{'T ' [k % 2]}{time:%H:%M:%S.%f}{offset(time, k)}" for k, time in enumerate(times)
    ]  # fmt: skip


def table(times) -> pl.DataFrame:
    return pl.DataFrame({"id": range(300), "v": range(300), "when": times})


def utc(unit: str, zone: str) -> pl.Series:
    naive = pl.Series([instant.astimezone(UTC).replace(tzinfo=None) for instant in INSTANTS])
    return naive.dt.replace_time_zone("UTC").dt.convert_time_zone(zone).dt.cast_time_unit(unit)


COLUMNS = {
    "text": texts,
    "categorical text": lambda: pl.Series(texts(), dtype=pl.Categorical),
    "Berlin": lambda: utc("us", "Europe/Berlin"),
    "Kathmandu, nanoseconds": lambda: utc("ns", "Asia/Kathmandu"),
    "UTC": lambda: utc("us", "UTC"),
}
SINCE = ["2007-01-31T00:00+01:00", "2007-01-30T23:00:00Z", "2007-01-30 23:00:00 UTC", "2007-01-31 04:45+05:45", CUT]


@pytest.mark.parametrize("kind", list(COLUMNS))
@pytest.mark.parametrize("since", SINCE, ids=str)
def test_offsets_around_the_cut_all_land_in_the_right_domain(kind, since):
    graph = read_graph(table(COLUMNS[kind]()), None, time="when", since=since)
    assert graph.is_target.tolist() == EXPECTED


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize("kind", ["text", "Berlin", "UTC"])
def test_files_and_packed_graphs_have_the_same_domains(kind, suffix, tmp_path):
    nodes, edges = tmp_path / f"nodes.{suffix}", tmp_path / "edges.csv"
    frame = table(COLUMNS[kind]())
    {"csv": frame.write_csv, "parquet": frame.write_parquet, "arrow": frame.write_ipc}[suffix](nodes)
    edges.write_text("a,b\n0,1\n")
    options = {"time": "when", "since": "2007-01-31T00:00+01:00"}
    assert read_graph(nodes, edges, **options).is_target.tolist() == EXPECTED
    pack(nodes, edges, tmp_path / "graph", **options)
    assert open_packed(tmp_path / "graph").is_target.tolist() == EXPECTED


@pytest.mark.parametrize("zone", ["+01:00", "Europe/Berlin", "UTC"])
def test_files_of_arrow_and_pandas(zone, tmp_path):
    when = pa.array(INSTANTS, pa.timestamp("us", tz=zone))
    arrow = pa.table({"id": range(300), "v": range(300), "when": when})
    pa.parquet.write_table(arrow, tmp_path / "n.parquet")
    pa.feather.write_feather(arrow, tmp_path / "n.feather")
    frame = pd.DataFrame({"id": range(300), "v": range(300), "when": pd.Series(INSTANTS).dt.tz_convert(zone)})
    for nodes in (tmp_path / "n.parquet", tmp_path / "n.feather", frame):
        assert read_graph(nodes, None, time="when", since=CUT).is_target.tolist() == EXPECTED


@pytest.mark.parametrize("unit", ["ms", "us", "ns", "date"])
def test_times_before_1970_and_of_every_unit_are_compared_exactly(unit):
    cut = datetime(1961, 5, 4, 0, 0, 0, 500)
    steps = [timedelta(days=-2), timedelta(microseconds=-1), timedelta(0), timedelta(microseconds=1), timedelta(days=2)]
    times = pl.Series([cut + step for step in steps])
    times = times.dt.date() if unit == "date" else times.dt.cast_time_unit(unit)
    kept = [datetime(time.year, time.month, time.day) if unit == "date" else time for time in times.to_list()]
    frame = pl.DataFrame({"id": range(5), "v": range(5), "when": times})
    graph = read_graph(frame, None, time="when", since=cut)
    assert graph.is_target.tolist() == [time >= cut for time in kept]


def test_times_without_offsets_are_compared_as_they_are():
    naive = [clock(k).replace(tzinfo=None) for k in range(300)]
    expected = [time >= datetime(2007, 1, 31) for time in naive]
    for times in (naive, [f"{time:%Y-%m-%d %H:%M:%S.%f}" for time in naive], [time.isoformat() for time in naive]):
        for since in ("2007-01-31", "2007-01-31T00:00", date(2007, 1, 31), datetime(2007, 1, 31)):
            assert read_graph(table(times), None, time="when", since=since).is_target.tolist() == expected


def test_whole_numbers_are_compared_as_whole_numbers():
    nanoseconds = 2**60 + np.arange(-150, 150)
    graph = read_graph(table(nanoseconds), None, time="when", since=str(2**60))
    assert graph.is_target.tolist() == [False] * 150 + [True] * 150
    graph = read_graph(table(np.arange(300)), None, time="when", since="9.5")
    assert graph.is_target.tolist() == [False] * 10 + [True] * 290


AWARE = ["2007-01-30T00:00Z", "2007-01-31T00:00Z", "2007-02-01T00:00Z"]
NAIVE = ["2007-01-30T00:00", "2007-01-31T00:00", "2007-02-01"]


@pytest.mark.parametrize(
    ("times", "since", "message"),
    [
        (AWARE, "2007-01-31", r"since=2007-01-31 has none; .*such as 2007-01-31T00:00:00\+01:00"),
        (AWARE, date(2007, 1, 31), r"or 2007-01-31T00:00:00Z for UTC"),
        (AWARE, datetime(2007, 1, 31), r"offset that is meant"),
        ([datetime(2007, 1, day, tzinfo=UTC) for day in (1, 2, 3)], "2007-01-02", r"2007-01-02T00:00:00Z for UTC"),
        (NAIVE, "2007-01-31T00:00+01:00", r"without an offset, or give every time"),
        ([date(2007, 1, day) for day in (1, 2, 3)], "2007-01-02T00:00Z", r"without an offset"),
        (
            NAIVE,
            datetime(2007, 1, 31, tzinfo=ZoneInfo("Asia/Tokyo")),
            r"without an offset, or give",
        ),
        ([*AWARE[:2], NAIVE[2]], "2007-01-31", r"'2007-01-30T00:00Z'.* beside times without .'2007-02-01', in 1 rows"),
        ([*AWARE[:2], NAIVE[2]], "2007-01-31T00:00Z", r"give every time an offset, such as 2007-01-31T00:00\+01:00"),
        (["2007-01-31T00:00 CET"] * 3, "2007-01-31", r"must hold numbers or dates .*got '2007-01-31T00:00 CET'"),
        (["2007-01-31T00:00+25:00"] * 3, "2007-01-31", r"must hold numbers or dates"),
        ([timedelta(1), timedelta(2), timedelta(3)], "2007-01-31", r"must hold numbers or dates .*got Duration"),
        (AWARE, "2009-01-01T00:00Z", r"runs from 2007-01-30T00:00:00Z to 2007-02-01T00:00:00Z"),
        (NAIVE, "2009-01-01", r"runs from 2007-01-30 to 2007-02-01"),
        (NAIVE, "soon", r"needs a date such as 2007-01-31"),
        (NAIVE, 10**400, r"needs a date"),
        ([1, 2, 3], 10**400, r"needs a number"),
        (pl.Series([-(2**31), 0, 2**31 - 1], dtype=pl.Int32).cast(pl.Date), "9999-12-31T23:00Z", r"without an offset"),
    ],
)
def test_times_that_cannot_be_compared_are_refused_with_what_to_write(times, since, message):
    frame = pl.DataFrame({"id": [1, 2, 3], "v": [1, 2, 3], "when": times})
    with pytest.raises(TableError, match=message):
        read_graph(frame, None, time="when", since=since)


def test_the_advice_can_be_followed():
    frame = pl.DataFrame({"id": [1, 2, 3], "v": [1, 2, 3], "when": AWARE})
    assert read_graph(frame, None, time="when", since="2007-01-31T00:00:00+01:00").is_target.tolist() == [0, 1, 1]
    frame = pl.DataFrame({"id": [1, 2, 3], "v": [1, 2, 3], "when": NAIVE})
    assert read_graph(frame, None, time="when", since="2007-01-31T00:00:00").is_target.tolist() == [0, 1, 1]
