"""Text -> the numbers that it spells: decimal points or commas, thousands set apart, units, and missing values.

No other place reads numbers from text: a model that was fitted reads tomorrow's table as it read today's.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import polars as pl

DecimalMark: TypeAlias = Literal[".", ","]

# How missing numbers are written, in any case, with or without spaces around: by R, SQL, pandas, spreadsheets, people.
MISSING_SPELLINGS = (
    "", "na", "n/a", "#n/a", "nan", "null", "#null!", "none", "nil", "missing", "\\n", "-", "--", "?", ".",
    "#div/0!", "#num!", "#ref!", "#value!", "#name?",
)  # fmt: skip

_SPACES = "[ \u00a0\u2009\u202f'’]"  # between thousands
_MINUS = "−"  # as typeset
_CODE = r"^[+-]?0[0-9]"  # 007 is not written to be reckoned with
_CURRENCY = r"(?:[$€£¥₹]|\b(?:USD|EUR|GBP|CHF|JPY)\b)"
_UNIT = rf"(?:{_CURRENCY}|%)"
SURE = 50  # values such as 1,234, beside some without a comma, from which on the comma separates thousands


def _pattern(decimal: str, thousands: str) -> str:
    whole = rf"(?:[0-9]+|[1-9][0-9]{{0,2}}(?:(?:{thousands}[0-9]{{3}})+|(?:{_SPACES}[0-9]{{3}})+))"
    number = rf"(?:{whole}(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    return rf"^[+{_MINUS}-]?(?:{number}|(?i:inf|infinity))$"


_PATTERNS: Mapping[DecimalMark, str] = {".": _pattern(r"\.", ","), ",": _pattern(",", r"\.")}


def spells_missing(texts: pl.Series) -> pl.Series:
    """Return for each text whether it stands for a missing number, or is missing itself."""
    return texts.str.strip_chars().str.to_lowercase().is_in(MISSING_SPELLINGS).fill_null(True)


def are_codes(texts: pl.Series) -> bool:
    """Return whether some texts begin with a zero that no number has, as in 007."""
    return bool(texts.str.contains(_CODE).any())


def without_units(texts: pl.Series) -> pl.Series:
    """Return texts without blanks around them, and without a currency or a percent sign.

    >>> without_units(pl.Series(["$1,200", "-€ 5", "12 %", "7 USD", "x"])).to_list()
    ['1,200', '-5', '12', '7', 'x']
    """
    bare = texts.str.strip_chars().str.replace(rf"^([+{_MINUS}-]?)\s*{_CURRENCY}\s*([^\s])", "${1}${2}")
    return bare.str.replace(rf"([^\s])\s*{_UNIT}$", "${1}")


def units_of(texts: pl.Series) -> list[str]:
    """Return the currencies and percent signs that texts hold."""
    return texts.str.extract(f"({_UNIT})").drop_nulls().unique().sort().to_list()


def are_numbers(texts: pl.Series, mark: DecimalMark) -> pl.Series:
    """Return for each text whether it is a number with this decimal mark; true where it is missing.

    >>> are_numbers(pl.Series(["12,5", "1.234,56", "1 234", "€ 5", "12.5", "x"]), ",").to_list()
    [True, True, True, True, False, False]
    """
    return without_units(texts).str.contains(_PATTERNS[mark]) | spells_missing(texts)


def decimal_marks(
    texts: pl.Series, *, known: DecimalMark | None = None, hint: DecimalMark | None = None
) -> Sequence[DecimalMark]:
    """Return the decimal marks by which all texts are numbers: none, one, or both where it cannot be told.

    Args:
        texts: the texts.
        known: the mark by which numbers of this column were read before; it counts wherever it is possible.
        hint: the mark that decides where both are possible and there are commas.

    >>> [decimal_marks(pl.Series(texts)) for texts in (["1,5", "2"], ["1.5", "2"], ["1,234.5"], ["1,234"], ["x"])]
    [[','], ['.'], ['.'], ['.', ','], []]
    """
    marks: list[DecimalMark] = [mark for mark in _PATTERNS if are_numbers(texts, mark).all()]
    if known in marks:
        return [known]
    if len(marks) == 2:
        commas = texts.str.contains(",", literal=True).fill_null(False)
        if not commas.any():
            return ["."]
        if hint is not None:
            return [hint]
        others = texts.filter(~commas & ~spells_missing(texts))
        if commas.sum() >= SURE and len(others) and not others.str.contains(".", literal=True).any():
            return ["."]  # decimals would have other numbers of digits now and then
    return marks


def to_numbers(texts: pl.Series, mark: DecimalMark) -> pl.Series:
    """Return the numbers of texts; null for those that are none.

    >>> to_numbers(pl.Series(["12,5", "1.234,56", "NA", None]), ",").to_list()
    [12.5, 1234.56, None, None]
    """
    plain = without_units(texts).str.replace_all(_SPACES, "").str.replace(_MINUS, "-", literal=True)
    plain = plain.str.replace_all("." if mark == "," else ",", "", literal=True).str.replace(",", ".", literal=True)
    values = plain.cast(pl.Float64, strict=False)
    is_number = are_numbers(texts, mark) & ~spells_missing(texts)
    return values.zip_with(is_number, pl.Series([None], dtype=pl.Float64))


def two_readings(texts: pl.Series) -> str:
    """Say of texts that may be read in two ways which ones these are, and what to do.

    >>> two_readings(pl.Series(["7", "1,234"]))
    "'1,234' may be 1234 or 1.234; write it without the comma or with a point, or separate the file's columns by ; if \
commas are decimal"
    """
    example = texts.filter(texts.str.contains(",", literal=True).fill_null(False))[:1]
    thousands, decimal = (f"{to_numbers(example, mark)[0]:.12g}" for mark in (".", ","))
    return (
        f"{example[0].strip()!r} may be {thousands} or {decimal}; write it without the comma or with a point, or "
        "separate the file's columns by ; if commas are decimal"
    )
