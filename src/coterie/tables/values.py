"""Cells as people write them: a column of texts -> numbers, dates, booleans or categories, and what was decided.

Everything is decided per column, never per cell, and on its distinct texts. Texts are compared by their shape, in which
every digit is a 0: a column has millions of texts, but few shapes, so that patterns are matched on these alone.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Codes: TypeAlias = npt.NDArray[np.int32]
Counts: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]
ReadableKind: TypeAlias = Literal["number", "date"]

# Cells that stand for a missing value in every column; surrounding spaces are ignored.
MISSING_MARKERS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?", "-"})
# These are written by programs for a missing number, which is counted elsewhere: no note is needed.
UNTOLD_MARKERS = frozenset({"", "NA", "NaN", "nan", "null", "NULL", "None", "<NA>", "NaT"})
# Cells that stand for a missing value among numbers and dates, in any case.
_PLACEHOLDERS = (
    *("n/a", "#n/a", "na", "n.a.", "nan", "nat", "<na>", "null", "(null)", "nil", "none", "(none)", "unknown", "unk"),
    *("undefined", "missing", "not available", "not applicable", "no data", "tbd", "\\n", ".", "..", "...", "?", "??"),
    *("-", "--", "---", "\u2013", "\u2014", "#div/0!", "#value!", "#ref!", "#num!", "#name?", "#null!", "#error!"),
    *("#nv", "#wert!", "#bezug!", "unbekannt", "keine Angabe", "keine angabe", "k.A.", "k. A.", "k.a."),
)
PLACEHOLDERS = frozenset(form(text) for text in _PLACEHOLDERS for form in (str, str.upper, str.capitalize, str.title))
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}

_MOST = 0.95  # of at least 20 numbers and other texts must be numbers, for the others to be taken as missing
_MIN_MOST = 20
_ALMOST_ALL = 0.9
_CODE_FRACTION = 0.1
_SAMPLE = 2_000
_TEXTS_PER_BATCH = 100_000
_MAX_SHOWN = 4

# Shapes: digits as 0, and one form of minus, space and apostrophe. Replacements are one to one: positions stay.
_SPACES = " \u00a0\u2007\u2009\u200a\u202f"
_MINUS = "-\u2212\u2013\uff0d"
_APOSTROPHES = "'\u2019"
_TO_SHAPE = (
    dict.fromkeys(map(ord, "123456789"), "0")
    | dict.fromkeys(map(ord, _SPACES), " ")
    | dict.fromkeys(map(ord, _MINUS), "-")
    | dict.fromkeys(map(ord, _APOSTROPHES), "'")
)

_POINT = r"(?:0+|0{1,3}(?:,000)+|0{1,2}(?:,00)+,000|0{1,3}(?:'000)+|0{1,3}(?: 000)+)(?:\.0*)?|\.0+"
_COMMA = r"(?:0+|0{1,3}(?:\.000)+|0{1,3}(?:'000)+|0{1,3}(?: 000)+)(?:,0+)?|,0+"
_ISO_CURRENCIES = "USD|EUR|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|HUF|RUB|TRY|BRL|CAD|AUD|NZD|MXN|ZAR|KRW|SGD|HKD"
_CURRENCY = (
    rf"[A-Z]{{0,2}}[$\u20ac\u00a3\u00a5\u20b9\u20bd\u20a9\u20ba\u20aa\u20ab\u20b4\u20a6\u0e3f]|{_ISO_CURRENCIES}"
)
# A unit follows a space, or has two letters, or is a sign or one of the usual letters.
_WORD = r"[^\W\d_]{1,12}[\u00b2\u00b3]?"
_UNIT = rf"%|\u2030|\u00b0[CFK]?| {_WORD}(?:/{_WORD})?|(?:[^\W\d_]{{2,5}}|[gmshltd])[\u00b2\u00b3]?(?:/{_WORD})?"
_NUMBER = re.compile(
    rf"(?P<bound>[<>]=?|[\u2264\u2265])? ?(?P<open>\()?(?P<sign>[+-] ?)?(?:(?P<prefix>{_CURRENCY}) ?(?P<inner>[+-])?)?"
    r"(?P<digits>[0.,' ]*[0.,])(?:(?P<exponent>[eE][+-]?0+)|(?P<multiple>[kKMB](?![^\W\d_])))?(?P<trailing>-)?"
    rf"(?: ?(?P<suffix>{_CURRENCY}|%)|(?P<unit>{_UNIT}))?(?P<close>\))?(?P<share> ?\([+-]?[0.,]+ ?%\))?"
)
_MULTIPLES = {"k": "e3", "K": "e3", "M": "e6", "B": "e9"}
_MULTIPLE_NAMES = {"k": "thousands", "K": "thousands", "M": "millions", "B": "billions"}
_BOUNDS = "<>=\u2264\u2265"
_PLURALS = ("s", "es", "e", "en", "n")  # endings by which "room" and "rooms", or "Tag" and "Tage", are one unit
_SHORTEST_WORD = 3
_CREDITS, _DEBITS = frozenset({"CR", "Cr"}), frozenset({"DR", "Dr"})  # of accounts
_EXPONENT = re.compile("0[eE][+-]?0")
_POINT_DIGITS, _COMMA_DIGITS = re.compile(_POINT), re.compile(_COMMA)
_INFINITY = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)
_PLAIN_INTEGER = re.compile(r"[+-]?0+")
_PHONE_WITH_PLUS = re.compile(r"\+0{7,}")
_PHONE = re.compile(r"000 000(?: 000)+|\+0+(?: 0+)+")
_ADDRESS = re.compile(r"0{1,3}(?:\.0{1,3}){3}")  # of a computer

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            ("jan", "january", "januar", "jänner"),
            ("feb", "february", "februar"),
            ("mar", "march", "mär", "märz", "mrz"),
            ("apr", "april"),
            ("may", "mai"),
            ("jun", "june", "juni"),
            ("jul", "july", "juli"),
            ("aug", "august"),
            ("sep", "sept", "september"),
            ("oct", "october", "okt", "oktober"),
            ("nov", "november"),
            ("dec", "december", "dez", "dezember"),
        ),
        start=1,
    )
    for name in names
}
_NAME = rf"(?P<name>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})"
_DATES = (
    r"(?P<year>0000)(?P<mark>[-/.])(?P<month>0{1,2})(?P=mark)(?P<day>0{1,2})",
    r"(?P<year>0000)-(?P<month>00)",
    r"(?P<first>0{1,2})(?P<mark>[-/.]|\. )(?P<second>0{1,2})(?P=mark)(?P<year>0000|00)",
    rf"(?P<day>0{{1,2}})(?:st|nd|rd|th|\.)?[-/ ]? ?{_NAME}\.?,?[-/ ]? ?(?P<year>0000|00)",
    rf"{_NAME}\.?[- ](?P<day>0{{1,2}})(?:st|nd|rd|th)?(?:, ?|[- ])(?P<year>0000)",
    rf"{_NAME}\.?[- ](?P<year>0000)",
)
_TIME = (
    r"(?P<hour>0{1,2})(?::(?P<minute>00)(?::(?P<second_of_minute>00)(?:[.,](?P<fraction>0{1,9}))?)?)?"
    r"(?: ?(?P<half>[ap])\.?m\.?)?"
    r"(?: ?(?P<zone>z|(?:utc|gmt)?(?P<offset>[+-](?P<zone_hour>0{1,2})(?::?(?P<zone_minute>00))?)|utc|gmt))?"
)
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?,? )?"
_MOMENTS = tuple(re.compile(rf"{_WEEKDAY}{day}(?:(?:[t ]|, ?| at |:(?=00:)){_TIME})?", re.IGNORECASE) for day in _DATES)
_TIME_OF_DAY = re.compile(_TIME, re.IGNORECASE)
_UNPADDED = re.compile(r"(?!00\.00)0{1,2}\.0{1,2}\.00(?!0)")
_PIVOT = 69  # two-digit years from here on are of the 1900s, as in POSIX
_DAY = 86_400_000_000  # microseconds
_YEARS = (1000, 9999)

_NAME_PARTS = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+")
_TIME_NAMES = {"ts", "created", "updated", "modified", "deleted", "expires", "expiry", "epoch", "unix", "seen", "login"}
_TIME_ENDINGS = ("time", "date", "stamp", "datum", "zeit", "datetime", "zeitpunkt")
_EARLIEST, _LATEST = 631_152_000, 4_102_444_800  # the years 1990 to 2100, in seconds since 1970


@final
@dataclass(frozen=True, eq=False)
class TypedColumn:
    """The values of a column, and what was decided to get them; times without a date are of 1970-01-01."""

    values: Array  # numbers, booleans, datetime64, or objects: ``str`` or ``None``
    notes: tuple[str, ...] = ()  # without the name of the column
    date_order: str = ""  # whether the "day" or the "month" came first in dates; with "?" if no value told


def infer_column(
    texts: Sequence[str | None],
    *,
    name: str = "",
    decimal_comma: bool | None = None,
    kind: ReadableKind | None = None,
) -> TypedColumn:
    """Convert texts to the type that they are written in: numbers, dates, booleans, or else categories.

    Parameters
    ----------
    texts : sequence of str or None
        The cells; None is missing.
    name : str
        Name of the column: only where it speaks of a time, large integers are seconds since 1970.
    decimal_comma : bool, optional
        Whether ``1,234`` is more likely 1.234 if the column does not tell; by default it is 1234.
    kind : {"number", "date"}, optional
        What the column must be: any other text becomes a gap. By default most texts decide.

    Returns
    -------
    TypedColumn
        The values, and notes on what was decided.

    Examples
    --------
    >>> column = infer_column(["$1,234.50", "(12)", "n/a"])
    >>> column.values.tolist()
    [1234.5, -12.0, nan]
    >>> infer_column(["31.12.2024", "1.2.2025"]).values.astype(str).tolist()
    ['2024-12-31T00:00:00.000000', '2025-02-01T00:00:00.000000']
    """
    return infer_levels(*factorise(texts), name=name, decimal_comma=decimal_comma, kind=kind)


def factorise(texts: Sequence[str | None]) -> tuple[list[str], Codes]:
    """Return the distinct texts in the order in which they occur, and the position of each cell's text; -1 for None."""
    levels = [text for text in dict.fromkeys(texts) if text is not None]
    position: dict[str | None, int] = {text: i for i, text in enumerate(levels)}
    position[None] = -1
    return levels, np.fromiter(map(position.__getitem__, texts), dtype=np.int32, count=len(texts))


def infer_levels(
    levels: Sequence[str],
    codes: Codes,
    *,
    name: str = "",
    decimal_comma: bool | None = None,
    kind: ReadableKind | None = None,
) -> TypedColumn:
    """Do as `infer_column`, given distinct texts and the position of each cell's text among them; -1 is missing."""
    texts = _Texts.of(levels, codes)
    if not texts.present.any():
        return TypedColumn(np.full(len(codes), np.nan))
    if kind is None and (codes >= 0).all() and all(text in _BOOLEANS for text in texts.levels):
        return TypedColumn(np.array([_BOOLEANS[text] for text in texts.levels])[texts.codes])
    if kind is None and not _may_be_typed(texts):
        return texts.as_text()
    shapes = _Shapes.of(texts)
    dates = _read_dates(shapes)
    numbers = _read_numbers(shapes, decimal_comma=decimal_comma, must_be_numbers=kind == "number")
    found = dates if dates.count >= max(1, numbers.count) else numbers
    if kind is not None:
        found = numbers if kind == "number" else dates
    elif reason := _text_reason(shapes, numbers) if found is numbers else "":
        return texts.as_text(reason)
    elif not _are_most(texts, found.good):
        return texts.as_text()
    notes = (*found.notes, *_tell_gaps(texts, found))
    values = np.append(found.values, np.array(np.nan).astype(found.values.dtype))[texts.codes]
    plain = TypedColumn(values, (), found.date_order)
    last = plain if kind is not None else read_epochs(values, name) or plain
    return TypedColumn(last.values, (*notes, *last.notes), last.date_order)


def keep_text(levels: Sequence[str], codes: Codes) -> TypedColumn:
    """Return texts as they are written, without surrounding spaces; only missing markers become None."""
    return _Texts.of(levels, codes).as_text()


def read_epochs(values: Array, name: str) -> TypedColumn | None:
    """Return numbers as moments if the name of their column and all of them say so; else None.

    They are seconds or milliseconds since 1970 in the years 1990 to 2100, or dates such as 20241231.
    """
    if values.dtype.kind not in "iuf" or not is_time_name(name):
        return None
    finite = np.isfinite(values)
    present = values[finite].astype(np.float64)
    if not len(present):
        return None
    moments = np.full(len(values), np.datetime64("NaT"), dtype="datetime64[us]")
    low, high = present.min(), present.max()
    for unit, factor in {"seconds": 1, "milliseconds": 1_000}.items():
        if factor * _EARLIEST <= low and high < factor * _LATEST:
            moments[finite] = np.rint(present * (1_000_000 // factor)).astype("datetime64[us]")
            return TypedColumn(moments, (f"read as {unit} since 1970",))
    if low >= 19_000_101 and high <= 21_001_231 and (present == np.floor(present)).all():
        whole = present.astype(np.int64)
        days, valid = _to_days(whole // 10_000, whole // 100 % 100, whole % 100)
        if valid.all():
            moments[finite] = days
            return TypedColumn(moments, ("read as dates of eight digits: year, month and day",))
    return None


def is_time_name(name: str) -> bool:
    """Return whether the name of a column speaks of a moment.

    Examples
    --------
    >>> [is_time_name(name) for name in ("created_at", "startTime", "TIMESTAMP", "ts", "amount", "Zeitpunkt")]
    [True, True, True, True, False, True]
    """
    parts = [part.lower() for part in _NAME_PARTS.findall(name)]
    return any(part in _TIME_NAMES or part.endswith(_TIME_ENDINGS) for part in parts)


def is_value(text: str) -> bool:
    """Return whether a text is a number or a date of a day, rather than a name: a first row of these is no header.

    Examples
    --------
    >>> [is_value(text) for text in ("$12", "31.12.2024", "12 kg", "May 2024", "height")]
    [True, True, False, False, False]
    """
    shape = text.strip().translate(_TO_SHAPE)
    number, moment = _number_shape(shape), _date_shape(shape)
    return (number is not None and not number.unit) or (moment is not None and "day" in moment.fields)


@final
@dataclass(frozen=True, eq=False)
class _Texts:
    """The distinct texts of a column, where they occur, and how often."""

    levels: list[str]  # without surrounding spaces
    codes: Codes  # of each cell; -1 is missing
    counts: Counts
    present: Flags  # of each level: whether it is no missing marker

    @staticmethod
    def of(levels: Sequence[str], codes: Codes) -> "_Texts":
        stripped = [text.strip() for text in levels]
        if len(set(stripped)) < len(stripped):
            stripped, merged = factorise(stripped)
            codes = np.append(merged, np.int32(-1))[codes]
        counts = np.zeros(len(stripped) + 1, dtype=np.int64)
        step = max(_TEXTS_PER_BATCH, len(counts))  # a few at a time, since counting converts codes to 64 bits
        for start in range(0, len(codes), step):
            counts += np.bincount(codes[start : start + step] + 1, minlength=len(counts))
        counts = counts[1:]
        present = np.fromiter((text not in MISSING_MARKERS for text in stripped), np.bool_, len(stripped))
        return _Texts(stripped, codes, counts, present & (counts > 0))

    def as_text(self, *notes: str) -> TypedColumn:
        known = [text if there else None for text, there in zip(self.levels, self.present.tolist(), strict=True)]
        return TypedColumn(np.array([*known, None], dtype=object)[self.codes], notes)


def _may_be_typed(texts: _Texts) -> bool:
    """Return whether it is worth to look at all of very many texts: half of a sample is no mere text."""
    where = np.flatnonzero(texts.present)
    if len(where) <= 2 * _SAMPLE:
        return True
    where = where[np.linspace(0, len(where) - 1, _SAMPLE).astype(np.int64)]
    shapes = [texts.levels[i].translate(_TO_SHAPE) for i in where]
    typed = [
        _number_shape(shape) is not None or _date_shape(shape) is not None or texts.levels[i] in PLACEHOLDERS
        for i, shape in zip(where, shapes, strict=True)
    ]
    counts = texts.counts[where]
    return bool(counts[np.array(typed)].sum() >= 0.5 * counts.sum())


@final
@dataclass(frozen=True, eq=False)
class _Shapes:
    """The distinct shapes of the present texts of a column."""

    texts: _Texts
    shapes: list[str]
    of_level: Codes  # the shape of each level; -1 of missing markers
    counts: Counts  # of cells

    @staticmethod
    def of(texts: _Texts) -> "_Shapes":
        position: dict[str, int] = {}
        of_level = np.full(len(texts.levels), -1, dtype=np.int32)
        where = np.flatnonzero(texts.present)
        for start in range(0, len(where), _TEXTS_PER_BATCH):
            batch = where[start : start + _TEXTS_PER_BATCH]
            shapes = _translate([texts.levels[i] for i in batch], _TO_SHAPE)
            of_level[batch] = [position.setdefault(shape, len(position)) for shape in shapes]
        counts = np.zeros(len(position), dtype=np.int64)
        np.add.at(counts, of_level[where], texts.counts[where])
        return _Shapes(texts, list(position), of_level, counts)

    def levels_of(self, wanted: Sequence[bool] | Flags) -> Flags:
        """Return the levels whose shape is wanted."""
        return np.append(np.asarray(wanted, dtype=np.bool_), False)[self.of_level]


def _translate(texts: Sequence[str], table: Mapping[int, str | None]) -> list[str]:
    """Translate many texts at once, if none has the character that joins them."""
    translated = "\0".join(texts).translate(table).split("\0")
    return translated if len(translated) == len(texts) else [text.translate(table) for text in texts]


@final
@dataclass(frozen=True, eq=False)
class _Reading:
    """An attempt to read texts: the value of each level, which levels have one, how many cells these are, and notes."""

    values: Array
    good: Flags
    count: int
    notes: tuple[str, ...] = ()
    what: str = "numbers"
    date_order: str = ""  # as in ``TypedColumn``
    written: Flags = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))  # as `good`, with any unit


def _are_most(texts: _Texts, good: Flags) -> bool:
    """Return whether the other texts are placeholders, at most as many cells, or at most 5 % of at least 20."""
    rest = texts.present & ~good
    where = np.flatnonzero(rest)
    is_placeholder = np.fromiter((texts.levels[i] in PLACEHOLDERS for i in where), np.bool_, len(where))
    n_placeholders = texts.counts[where[is_placeholder]].sum()
    n_good, n_others = texts.counts[good].sum(), texts.counts[where[~is_placeholder]].sum()
    if not n_good or n_placeholders > n_good:
        return False
    n = n_good + n_others
    return bool(n_others == 0 or (n >= _MIN_MOST and n_good >= _MOST * n))


def _tell_gaps(texts: _Texts, found: _Reading) -> list[str]:
    """Tell which texts were taken as missing, other than those that programs write."""
    gaps = {
        texts.levels[i]: int(texts.counts[i])
        for i in np.flatnonzero(~found.good & (texts.counts > 0))
        if texts.levels[i] not in UNTOLD_MARKERS
    }
    return tell_gaps(found.count, gaps, what=found.what)


def tell_gaps(n_good: int, gaps: Mapping[str, int], *, what: str = "numbers") -> list[str]:
    """Return notes on texts that were taken as missing, with the number of each; none if all values are missing."""
    if not n_good:
        return []
    total = n_good + sum(gaps.values())
    marked = {text: n for text, n in gaps.items() if text in MISSING_MARKERS or text in PLACEHOLDERS}
    others = {text: n for text, n in gaps.items() if text not in marked}
    notes = []
    if n := sum(marked.values()):
        notes.append(f"{n:,} of {total:,} values {'is' if n == 1 else 'are'} missing ({_count(marked)})")
    if n := sum(others.values()):
        how = f"is no {what.removesuffix('s')} and counts" if n == 1 else f"are no {what} and count"
        notes.append(f"{n:,} of {total:,} values {how} as missing ({_count(others)})")
    return notes


def _count(gaps: Mapping[str, int]) -> str:
    """List texts, the most frequent first, with the number of each."""
    frequent = sorted(gaps, key=lambda text: (-gaps[text], text))
    if len(frequent) == 1:
        return repr(frequent[0])
    shown = ", ".join(f"{text!r} {gaps[text]:,}" for text in frequent[:_MAX_SHOWN])
    rest = frequent[_MAX_SHOWN:]
    return f"{shown} and {len(rest):,} more {sum(gaps[text] for text in rest):,}" if rest else shown


# Numbers


@final
@dataclass(frozen=True)
class _NumberShape:
    point: bool  # whether it is a number if a point is the decimal sign
    comma: bool  # and if a comma is
    digits: str = ""  # the part of the shape that is the number, without its sign
    affix: str = ""  # currency or unit
    unit: bool = False  # whether the affix is a unit, which then all numbers have
    separator: str = ""  # the point or comma that is a decimal sign or groups thousands, if that is open
    negative: bool = False  # whether it is in parentheses
    trailing: bool = False  # whether its minus comes last, or the DR of a debit
    bound: bool = False  # whether it is like <0.5: less or more than can be measured
    multiple: str = ""  # k, K, M or B, as in 1.5k
    share: bool = False  # whether a percentage in parentheses follows, as in 12 (34%)


@lru_cache(maxsize=2**14)
def _number_shape(shape: str) -> _NumberShape | None:
    if _INFINITY.fullmatch(shape):
        return _NumberShape(point=True, comma=True)
    match = _NUMBER.fullmatch(shape)
    if match is None or (match["open"] is None) != (match["close"] is None):
        return None
    signs = [match[sign] for sign in ("open", "sign", "inner", "trailing") if match[sign]]
    affixes = [match[part] for part in ("prefix", "suffix", "unit") if match[part]]
    if len(signs) > 1 or len(affixes) > 1:
        return None
    digits = match["digits"]
    point, comma = _POINT_DIGITS.fullmatch(digits) is not None, _COMMA_DIGITS.fullmatch(digits) is not None
    if not point and not comma:
        return None
    affix = affixes[0].strip() if affixes else ""
    separator = next((mark for mark in ",." if mark in digits), "") if point and comma else ""
    return _NumberShape(
        point=point,
        comma=comma,
        digits=digits,
        affix=affix,
        unit=bool(affix) and (match["unit"] is not None or affix == "%"),
        separator=separator,
        negative=match["open"] is not None,
        trailing=match["trailing"] is not None or affix in _DEBITS,
        bound=match["bound"] is not None,
        multiple=match["multiple"] or "",
        share=match["share"] is not None,
    )


def _read_numbers(shapes: _Shapes, *, decimal_comma: bool | None, must_be_numbers: bool) -> _Reading:
    texts = shapes.texts
    known = [_number_shape(shape) for shape in shapes.shapes]
    numeric = shapes.levels_of([each is not None for each in known])
    if not numeric.any():
        return _Reading(np.full(len(texts.levels), np.nan), numeric, 0, written=numeric)
    point = shapes.levels_of([each is not None and each.point for each in known])
    comma = shapes.levels_of([each is not None and each.comma for each in known])
    _settle_leading_zeros(shapes, known, point, comma)
    uses_comma = _is_decimal_comma(shapes, known, point, comma, decimal_comma=decimal_comma)
    written = comma if uses_comma else point
    # Where bounds are not the exception, as in <18 and >=18, they are categories.
    bounds = shapes.levels_of([each is not None and each.bound for each in known])
    if not must_be_numbers and (written & bounds).sum() >= (written & ~bounds).sum():
        written = written & ~bounds
    if not written.any():
        return _Reading(np.full(len(texts.levels), np.nan), written, 0, written=written)
    affixes = _allowed_affixes(shapes, known, written)
    good = written & shapes.levels_of([each is not None and each.affix in affixes for each in known])
    values = _to_numbers(shapes, known, good, affixes, uses_comma=uses_comma)
    used = [each for i in np.unique(shapes.of_level[good]) if (each := known[i]) is not None]
    notes = tuple(_tell_numbers(used, uses_comma=uses_comma))
    return _Reading(values, good, int(texts.counts[good].sum()), notes, written=written)


def _settle_leading_zeros(shapes: _Shapes, known: Sequence[_NumberShape | None], point: Flags, comma: Flags) -> None:
    """Rule out thousands in texts such as 0,123 and 0.123, whose separator is a decimal sign."""
    for separator, other in ((",", point), (".", comma)):
        is_open = shapes.levels_of([each is not None and each.separator == separator for each in known])
        for level in np.flatnonzero(is_open):
            start = shapes.shapes[shapes.of_level[level]].index("0")
            other[level] = shapes.texts.levels[level][start] != "0"


def _is_decimal_comma(
    shapes: _Shapes, known: Sequence[_NumberShape | None], point: Flags, comma: Flags, *, decimal_comma: bool | None
) -> bool:
    """Decide whether the comma or the point is the decimal sign: cells that have only one reading decide."""
    counts = shapes.texts.counts
    n_point, n_comma = counts[point & ~comma].sum(), counts[comma & ~point].sum()
    if n_point or n_comma or not decimal_comma:
        return bool(n_comma > n_point)
    separators = {each.separator for each in known if each is not None}
    if separators == {"", "."}:
        # All texts are like 1.234 or 980: thousands are grouped where all without a point are below 1,000.
        others = [
            (shape, each) for shape, each in zip(shapes.shapes, known, strict=True) if each and not each.separator
        ]
        return all(each.digits.count("0") <= 3 and not _EXPONENT.search(shape) for shape, each in others)
    return "," in separators


def _allowed_affixes(shapes: _Shapes, known: Sequence[_NumberShape | None], written: Flags) -> set[str]:
    """Return the unit that all numbers must have, or the only currency that numbers may have."""
    cells = np.bincount(shapes.of_level[written], shapes.texts.counts[written], minlength=len(known))
    counts: dict[str, int] = defaultdict(int)
    units = {each.affix for each in known if each is not None and each.unit}
    for each, count in zip(known, cells.tolist(), strict=True):
        if each is not None:
            counts[each.affix] += count
    most = max(counts, key=lambda affix: counts[affix])
    if most in units:
        if most in _CREDITS | _DEBITS:
            return {"", *(units & (_CREDITS | _DEBITS))}
        return {most, *(unit for unit in units if _are_one_word(most, unit))}
    return {"", max(counts.keys() - units - {""}, key=lambda affix: (counts[affix], affix), default="")}


def _are_one_word(one: str, other: str) -> bool:
    """Return whether one of two units is the plural of the other."""
    stem, longer = sorted((one, other), key=len)
    return len(stem) >= _SHORTEST_WORD and longer in {stem + ending for ending in _PLURALS}


def _text_reason(shapes: _Shapes, numbers: _Reading) -> str:
    """Return why numbers are kept as text: they are codes, or have different units; empty if they are not kept."""
    texts, good = shapes.texts, numbers.good
    if not _are_most(texts, numbers.written):
        return ""
    used = np.unique(shapes.of_level[good])
    for pattern, what in ((_PHONE, "phone numbers"), (_ADDRESS, "network addresses")):
        if sum(shapes.counts[i] for i in used if pattern.fullmatch(shapes.shapes[i])) >= _ALMOST_ALL * numbers.count:
            return f"kept as text, since its values look like {what}"
    if all(_PLAIN_INTEGER.fullmatch(shapes.shapes[i]) for i in used):
        n_long = sum(shapes.counts[i] for i in used if _PHONE_WITH_PLUS.fullmatch(shapes.shapes[i]))
        if n_long >= _ALMOST_ALL * numbers.count:
            return "kept as text, since its values look like phone numbers"
        led = [i for i in np.flatnonzero(good) if texts.levels[i][0] == "0" != texts.levels[i]]
        if led and (len(used) == 1 or texts.counts[led].sum() >= _CODE_FRACTION * numbers.count):
            return "kept as text, since its numbers have leading zeros"
    if not _are_most(texts, good):
        known = map(_number_shape, shapes.shapes)
        affixes = sorted({each.affix or "none" for each in known if each is not None})
        return f"kept as text, since its numbers have different units: {', '.join(affixes[:_MAX_SHOWN])}"
    return ""


def _to_numbers(
    shapes: _Shapes, known: Sequence[_NumberShape | None], good: Flags, affixes: set[str], *, uses_comma: bool
) -> Floats:
    """Convert good levels to float64, a batch at a time: everything but digits, signs and exponents is removed."""
    table: dict[int, str | None] = dict.fromkeys(map(ord, f"{_SPACES}{_APOSTROPHES}){_BOUNDS}"))
    table |= dict.fromkeys(map(ord, _MINUS + "("), "-")
    table |= {ord(","): ".", ord("."): None} if uses_comma else {ord(","): None}
    table |= {ord(letter): power for letter, power in _MULTIPLES.items()}
    trailing = shapes.levels_of([each is not None and each.trailing for each in known])
    shared = shapes.levels_of([each is not None and each.share for each in known])
    values = np.full(len(good), np.nan)
    for levels, sign in ((good & ~trailing, 1.0), (good & trailing, -1.0)):
        where = np.flatnonzero(levels)
        if sign < 0:
            table |= dict.fromkeys(map(ord, _MINUS))
        for start in range(0, len(where), _TEXTS_PER_BATCH):
            batch = where[start : start + _TEXTS_PER_BATCH]
            texts = [shapes.texts.levels[i] for i in batch]
            if shared[batch].any():
                texts = [
                    text.rpartition("(")[0] if cut else text for text, cut in zip(texts, shared[batch], strict=True)
                ]
            for affix in sorted(affixes - {""}, key=len, reverse=True):
                texts = [text.replace(affix, "") for text in texts]
            values[batch] = sign * np.fromiter(map(float, _translate(texts, table)), np.float64, len(batch))
    return values


def _tell_numbers(used: Sequence[_NumberShape], *, uses_comma: bool) -> list[str]:
    """Tell what the signs among the digits were taken for."""
    notes = []
    if uses_comma and any("," in each.digits for each in used):
        notes.append("the comma was read as the decimal point")
    left_out = [repr(affix) for affix in sorted({each.affix for each in used} - {""})]
    thousands = "." if uses_comma else ","
    if any(thousands in each.digits for each in used):
        left_out.append(f"the thousands separator {thousands!r}")
    if any(each.share for each in used):
        left_out.append("the percentages in parentheses")
    if left_out:
        *first, last = left_out
        verb = "were" if first or last.startswith("the percentages") else "was"
        notes.append(f"{', '.join(first)}{' and ' if first else ''}{last} {verb} left out")
    notes += [
        f"{letter!r} was read as {_MULTIPLE_NAMES[letter]}"
        for letter in sorted({each.multiple for each in used} - {""})
    ]
    if any(each.bound for each in used):
        notes.append("values with < or > count as the number that follows")
    if any(each.affix in _DEBITS for each in used):
        notes.append("debits (DR) were read as negative")
    if any(each.trailing and each.affix not in _DEBITS for each in used):
        notes.append("numbers with a minus after them were read as negative")
    if any(each.negative for each in used):
        notes.append("numbers in parentheses were read as negative")
    return notes


# Dates and times


@final
@dataclass(frozen=True)
class _DateShape:
    fields: Mapping[str, tuple[int, int]]  # where the digits of each part are
    month: int = 0  # if it is written as a name
    half: str = ""  # a for am, p for pm
    offset: int = 0  # sign of the time zone's offset
    unpadded: bool = False  # whether it is like 1.2.34, which is a date only if others prove it

    @property
    def has_date(self) -> bool:
        return "year" in self.fields


@lru_cache(maxsize=2**14)
def _date_shape(shape: str) -> _DateShape | None:
    if "0" not in shape:
        return None
    match = next(filter(None, (pattern.fullmatch(shape) for pattern in _MOMENTS)), None)
    if match is None:
        match = _TIME_OF_DAY.fullmatch(shape)
        if match is None or not (match["minute"] or match["half"]):
            return None
    parts = match.groupdict()
    if parts["hour"] and not parts["minute"] and not parts["half"]:  # a date and one more number
        return None
    words = ("name", "mark", "half", "zone", "offset")
    fields = {part: match.span(part) for part, text in parts.items() if text is not None and part not in words}
    ordered = "first" in fields
    if ordered:
        fields["day"] = match.span("first")
    return _DateShape(
        fields,
        month=_MONTHS[parts["name"].lower()] if parts.get("name") else 0,
        half=(parts["half"] or "").lower(),
        offset={"+": 1, "-": -1}.get((parts["offset"] or "")[:1], 0),
        unpadded=ordered and _UNPADDED.match(shape) is not None,
    )


@final
class _Moments:
    """Parts of the dates and times of all levels, in arrays."""

    def __init__(self, n_levels: int) -> None:
        self.year, self.month, self.day = (np.full(n_levels, start, dtype=np.int64) for start in (1970, 1, 1))
        self.time = np.zeros(n_levels, dtype=np.int64)  # microseconds, less the offset of the zone
        self.valid = np.zeros(n_levels, dtype=np.bool_)
        self.unordered = np.zeros(n_levels, dtype=np.bool_)  # whether `day` and `month` may be the other way round

    def read(self, texts: Sequence[str], shape: _DateShape, where: npt.NDArray[np.intp]) -> None:
        """Read the texts of one shape."""
        cells = np.array(texts).view(np.uint32).reshape(len(texts), -1)

        def part(name: str, default: int = 0) -> Counts:
            start, stop = shape.fields.get(name, (0, 0))
            if start == stop:
                return np.full(len(texts), default, dtype=np.int64)
            number = np.zeros(len(texts), dtype=np.int64)
            for position in range(start, stop):
                number = 10 * number + cells[:, position] - ord("0")
            return number

        year_start, year_stop = shape.fields.get("year", (0, 0))
        year = part("year", 1970)
        if year_stop - year_start == 2:
            year += np.where(year < _PIVOT, 2000, 1900)
        hour, minute, second = part("hour"), part("minute"), part("second_of_minute")
        valid = (hour < 24) & (minute < 60) & (second < 60) & (year >= _YEARS[0]) & (year <= _YEARS[1])
        if shape.half:
            valid &= (hour >= 1) & (hour <= 12)
            hour = hour % 12 + (12 if shape.half == "p" else 0)
        start, stop = shape.fields.get("fraction", (0, 0))
        fraction = part("fraction") * 10 ** max(0, 6 - stop + start) // 10 ** max(0, stop - start - 6)
        offset = shape.offset * (part("zone_hour") * 60 + part("zone_minute"))
        self.time[where] = ((hour * 60 + minute - offset) * 60 + second) * 1_000_000 + fraction
        self.year[where], self.day[where] = year, part("day", 1)
        self.month[where] = shape.month or part("second" if "first" in shape.fields else "month", 1)
        self.valid[where], self.unordered[where] = valid, "first" in shape.fields


def _read_dates(shapes: _Shapes) -> _Reading:
    texts = shapes.texts
    known = [_date_shape(shape) for shape in shapes.shapes]
    values = np.full(len(texts.levels), np.datetime64("NaT"), dtype="datetime64[us]")
    # Times are either all with a date, or all without.
    n_dated, n_times = (
        sum(int(count) for each, count in zip(known, shapes.counts, strict=True) if each and each.has_date is dated)
        for dated in (True, False)
    )
    used = [each if each is not None and each.has_date is (n_dated >= n_times) else None for each in known]
    if not any(used):
        return _Reading(values, np.zeros(len(values), dtype=np.bool_), 0, what="dates")
    moments = _Moments(len(values))
    by_shape = np.argsort(shapes.of_level, kind="stable")
    edges = np.searchsorted(shapes.of_level[by_shape], np.arange(len(used) + 1))
    for i, each in enumerate(used):
        if each is not None:
            where = by_shape[edges[i] : edges[i + 1]]
            moments.read([texts.levels[j] for j in where], each, where)
    order_of_days = _order_days(moments, texts.counts, shapes.levels_of([bool(each and each.half) for each in used]))
    if not order_of_days.proven:
        moments.valid &= ~shapes.levels_of([bool(each and each.unpadded) for each in used])
    days, exist = _to_days(moments.year, moments.month, moments.day)
    good = moments.valid & exist
    values[good] = days[good] + moments.time[good].astype("timedelta64[us]")
    count = int(texts.counts[good].sum())
    if n_dated < n_times:
        values[good] = (values[good].astype(np.int64) % _DAY).astype("datetime64[us]")  # the offset of a zone
        return _Reading(values, good, count, ("read as times of the day",), what="times")
    return _Reading(values, good, count, order_of_days.notes, what="dates", date_order=order_of_days.name)


class _Order(NamedTuple):
    proven: bool  # whether a day above 12 tells the order
    name: str  # as in ``TypedColumn.date_order``
    notes: tuple[str, ...]


def _order_days(moments: _Moments, counts: Counts, half: Flags) -> _Order:
    """Decide whether the day or the month comes first, from those above 12, and put them in order."""
    unordered = moments.valid & moments.unordered
    if not unordered.any():
        return _Order(proven=False, name="", notes=())
    first, second = moments.day, moments.month
    n_day_first = counts[unordered & (first > 12) & (second <= 12)].sum()
    n_month_first = counts[unordered & (second > 12) & (first <= 12)].sum()
    proven = bool(n_day_first != n_month_first)
    # Where nothing tells, the day comes first, as in most of the world; am and pm are mostly American.
    month_first = bool(n_month_first > n_day_first) if proven else bool((half & unordered).any())
    if month_first:
        first[unordered], second[unordered] = second[unordered], first[unordered]
    order = "the month before the day" if month_first else "the day before the month"
    doubt = "" if proven else ", though no value tells the order"
    name = ("month" if month_first else "day") + ("" if proven else "?")
    return _Order(proven, name, (f"dates were read with {order}{doubt}",))


def _to_days(year: Counts, month: Counts, day: Counts) -> tuple[Array, Flags]:
    """Return days as datetime64[us], and which of them exist."""
    valid = (month >= 1) & (month <= 12) & (day >= 1)
    months = np.where(valid, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (np.where(valid, day, 1) - 1).astype("timedelta64[D]")
    return days.astype("datetime64[us]"), valid & (days.astype("datetime64[M]") == months)
