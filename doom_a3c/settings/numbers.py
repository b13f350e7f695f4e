"""Numbers and times as people write them: 1e6, 1M, 2,000,000, 2_000_000, 90s, 1h30m."""

from __future__ import annotations

import re
from decimal import Decimal

MAX = 2**63  # no setting has a number of that magnitude
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86_400)}
_LONG = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hr": "h", "hour": "h", "day": "d"}
_FACTORS = {"k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9}
TIME_UNITS = {"seconds": 1, "minutes": 60}  # units of settings that are times, in seconds

_NUMBER = re.compile(r"([+-]?)(\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)?(\.\d*)?([eE][+-]?\d{1,4})? ?([a-zA-Z]*)")
_PART = re.compile(r"(\d+(?:\.\d+)?) ?([a-zA-Z]+) ?")
_SEPARATED = re.compile(r"[+-]?\d+([,.]\d+)+[a-zA-Z]*")


def parse_number(text: str, kind: type, unit: str) -> int | float:
    """Returns the number in a text for a setting of that kind, int or float, and unit.

    The suffixes k, M and B multiply counts, and 1m is a million frames; a time is in `unit`, and 1m is a minute.

    Raises:
        ValueError: if it is not a number of that kind, or is ambiguous.
    """
    text = text.strip()
    if unit in TIME_UNITS and (seconds := _parse_time(text)) is not None:
        return float(seconds / TIME_UNITS[unit])
    if not (match := _NUMBER.fullmatch(text)) or not (match[2] or (match[3] or "").strip(".")):
        raise ValueError(_explain(text, kind, unit))
    sign, whole, point, exponent, suffix = (part or "" for part in match.groups())
    if suffix and (unit in TIME_UNITS or suffix.lower() not in _FACTORS or (kind is float and suffix == "m")):
        raise ValueError(_explain(text, kind, unit))
    if whole.startswith("0,"):
        raise ValueError(f"{text[:40]!r} is ambiguous: decimals follow a point, as in 0.5")
    digits = whole.replace(",", "").replace("_", "") or "0"
    if kind is int and point and not (exponent or suffix):
        thousands = f"; for thousands leave the point out: {whole}{point[1:]}" if len(point) == 4 else ""
        raise ValueError(f"{text[:40]!r} is not a whole number{thousands}")
    number = Decimal(f"{sign}{digits}{point}{exponent}") * _FACTORS.get(suffix.lower(), 1)
    if abs(number) >= MAX:
        raise ValueError(f"{text[:40]} is out of range")
    if kind is float:
        return float(number)
    if number != int(number):
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(number)


def _parse_time(text: str) -> Decimal | None:
    """Returns the seconds of a time such as 90s, 1h30m or 10 minutes; None for anything else."""
    total, last = Decimal(0), None
    for number, word in _PART.findall(text):
        seconds = _SECONDS.get(_find_unit(word))
        if seconds is None or (last is not None and seconds >= last):  # 1h30m, and not 30m1h
            return None
        total, last = total + Decimal(number) * seconds, seconds
    return None if last is None or _PART.sub("", text) else total


def _find_unit(word: str) -> str:
    """Returns the unit of time that a word means; '' for M, which might be a minute, a month or a million."""
    if len(word) == 1:
        return "" if word == "M" else word.lower()
    word = word.lower()
    return word if word == "ms" else _LONG.get(word.removesuffix("s"), "")


def _explain(text: str, kind: type, unit: str) -> str:
    """Returns why a text is not a number of that kind and unit."""
    text = text[:40]
    if unit in TIME_UNITS:
        return f"{text!r} is not a time in {unit}, such as 90, 90s, 10m or 1h30m"
    if _parse_time(text) is not None:
        if text.endswith("m") and kind is float:
            return f"{text!r} is ambiguous: a million is 1M, a thousandth 1e-3"
        remedy = ": --minutes takes it" if unit == "frames" else ""
        return f"{text!r} is a time, and not a number{f' of {unit}' if unit else ''}{remedy}"
    if _SEPARATED.fullmatch(text):
        return f"{text!r} is ambiguous: commas separate thousands, as in 1,500, and decimals follow a point, as in 1.5"
    return f"{text!r} is not " + ("a whole number, such as 1e6, 1M or 1,000,000" if kind is int else "a number")
