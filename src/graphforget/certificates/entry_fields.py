"""What the fields of a ledger's entry may hold."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from typing import Literal, NoReturn

from graphforget.certificates.chain import REFUSED
from graphforget.certificates.levels import LEVELS, Level
from graphforget.errors import InputError

LONGEST_ID = 200


def check_time(time: str) -> None:
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)"
    try:
        if re.fullmatch(pattern, time, re.ASCII) and datetime.fromisoformat(time):
            return
    except ValueError:
        pass
    raise InputError(f"the time is {time!r}, a time in UTC such as 2026-01-31T12:00:00Z is needed")


def check_id(request_id: str) -> None:
    if not isinstance(request_id, str):
        raise InputError(f"the request id is {request_id!r}, a text is needed")
    if not request_id.strip():
        raise InputError("the request id is blank, every request needs one")
    if not request_id.isprintable():
        raise InputError(f"the request id is {request_id!r}, only characters that can be printed are allowed")
    if len(request_id) > LONGEST_ID:
        raise InputError(f"the request id has {len(request_id)} characters, up to {LONGEST_ID} are allowed")


def check_hex(digest: str, label: str, *, shortest: int, longest: int) -> None:
    """The lower limit excludes short numbers, which could identify a person."""
    if not re.fullmatch(rf"[0-9a-f]{{{shortest},{longest}}}", digest):
        allowed = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
        raise InputError(f"{label} is {digest!r}, {allowed} hexadecimal digits in lower case are needed")


def checked_ratio(level: Level | Literal["refused"], ratio: float | None) -> float | None:
    """The ratio as it is stored and hashed: a float, and never -0.0, of which SQLite does not keep the sign."""
    if level not in (*LEVELS, REFUSED):
        raise InputError(f"the level is {level!r}, {', '.join(LEVELS)} are possible")
    if level in ("conditional", "empirical"):
        if ratio is not None:
            raise InputError(f"the ratio is {ratio}, a release of level {level} has none")
        return None
    if ratio is None and level == REFUSED:
        return None
    if ratio is None:
        raise InputError(f"the ratio is missing, a release of level {level} needs one")
    if not 0 <= ratio < math.inf:
        raise InputError(f"the ratio is {ratio}, a finite number from 0 is needed")
    if level == "exact" and ratio != 0:
        raise InputError(f"the ratio is {ratio}, an exact release has ratio 0")
    return abs(float(ratio))


def check_json(answer: str) -> None:
    try:
        answer.encode()
        json.loads(answer, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the answer is not JSON: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
