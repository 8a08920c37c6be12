"""Decides whether the values of a column can be read as times, and how: by type, as text, or as a number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

import pyarrow.compute as pc

from quartet.database.inference.evidence import Column
from quartet.database.inference.names import split, word_set

TIME_WORDS = word_set(
    "date time datetime timestamp ts at on day hour dt dat utc gmt local epoch unix ms us ns"
)
# A number needs one of these to be taken for a time.
_EPOCH_WORDS = word_set(
    "date time datetime timestamp ts at dt dat epoch unix created inserted occurred recorded"
)
_YEAR_WORDS = word_set("year yr season")
_YEARS = (1800, 2100)
_GLUED = ("timestamp", "datetime", "date", "time")
_EPOCHS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH_SECONDS = (631_152_000, 4_102_444_800)  # 1990 to 2100
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?)?")
_ZONED = re.compile(r".*\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)")
_MANY, _FEW_BAD = 20, 0.05  # so many texts are dates although a few of them are none
_EMPTY = frozenset({"", "NaT", "null", "None", "\\N"})
_CLOCKS = ("", " %H:%M", " %H:%M:%S")
_DATE_LIKE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}")
_FORMATS = tuple(
    date.replace("/", sep) + clock
    for sep in "/.-"
    for date in ("%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d")
    for clock in _CLOCKS
)


@dataclass(frozen=True)
class Reading:
    """How the values of a column can be read as times; `doubt` says why they may be misread."""

    kind: str
    unit: str | None = None
    format: str | None = None
    trust: float = 1.0
    doubt: str = ""
    has_bad_cells: bool = False

    @property
    def settings(self) -> str:
        """The fields of the schema file by which the values are read so."""
        unit = f"time_unit: {self.unit}" if self.unit else ""
        form = f"time_format: '{self.format}'" if self.format else ""
        return ", ".join(filter(None, (unit, form, "on_bad_time: drop" if self.has_bad_cells else "")))


def reading_of(column: Column) -> Reading | None:
    """Returns how the values can be times, or None.

    Numbers can be a count of s, ms, us or ns since 1970, or days written YYYYMMDD, if their name is that of a time.
    """
    if column.kind not in ("time", "text", "integer") or len(column.cells) == 0:
        return None
    if column.kind == "time":
        return Reading("timestamp")
    if column.kind == "text":
        return _text_reading(column)
    if column.words.mark or not any(word in _EPOCH_WORDS for word in time_words(column.name)):
        return None
    low, high = pc.min_max(column.cells).as_py().values()
    for unit, ticks in _EPOCHS.items():
        if _EPOCH_SECONDS[0] * ticks <= low and high <= _EPOCH_SECONDS[1] * ticks:
            return Reading(f"number of {unit} since 1970", unit=unit, trust=0.97)
    is_day = low >= 1900_01_01 and all(_parses(str(day), "%Y%m%d") for day in (low, high, *column.sample()))
    return Reading("number written YYYYMMDD", format="%Y%m%d", trust=0.95) if is_day else None


def is_year(column: Column) -> bool:
    """Whether a column of whole numbers is named like a year and holds nothing else."""
    if column.kind != "integer" or not len(column.cells) or not _YEAR_WORDS & set(split(column.name)):
        return False
    low, high = pc.min_max(column.cells).as_py().values()
    return bool(low >= _YEARS[0] and high <= _YEARS[1])


def _text_reading(column: Column) -> Reading | None:
    if not any(map(_DATE_LIKE.match, column.sample(20))):
        return None
    texts = [text for text in column.sample() if text not in _EMPTY]
    if all(_ISO.fullmatch(text) and _parses(text) for text in texts):
        is_mixed = len({bool(_ZONED.fullmatch(text)) for text in texts}) > 1
        doubt = "some values have a zone and some have none" if is_mixed else ""
        return Reading("ISO time in text", trust=0.97, doubt=doubt)
    num_bad = sum(not (_ISO.fullmatch(text) and _parses(text)) for text in texts)
    if len(texts) >= _MANY and num_bad <= _FEW_BAD * len(texts):
        doubt = "a few values are no dates: on_bad_time: drop leaves their rows out"
        return Reading("ISO time in text", trust=0.97, doubt=doubt, has_bad_cells=True)
    formats = [form for form in _FORMATS if all(_parses(text, form) for text in texts)]
    if len(formats) == 1:
        return Reading(f"text of the form {formats[0]}", format=formats[0], trust=0.95)
    return Reading("time in text", doubt="the order of day and month is not certain") if formats else None


def _parses(text: str, form: str = "") -> bool:
    """Whether a text is a time of this form, or of ISO's if none is given."""
    try:
        datetime.strptime(text, form) if form else datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def time_words(name: str) -> tuple[str, ...]:
    """Returns the words of a name, with a time at the end of a word apart: `orderdate` is order + date."""
    words: list[str] = []
    for word in split(name):
        end = next((end for end in _GLUED if word.endswith(end)), "")
        if end and word not in TIME_WORDS and word != "update":
            words += [word.removesuffix(end), end]
        elif not word.isdigit():
            words.append(word)
    return tuple(words)
