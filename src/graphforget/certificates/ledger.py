"""The ledger: deletion requests and the releases that answered them, each entry chained to the one before by its hash.

Entries hold public documents and salted digests alone. `check` finds a change, a gap and a false start; a signature
covers the whole of an entry. Whoever can write the file can still cut off its end, or put an older copy in its place:
against that, keep `Ledger.head` in another place and compare.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from graphforget.certificates.gaussian import composed_ratio, epsilon_of
from graphforget.certificates.levels import LEVELS, Level
from graphforget.checks import read_fields
from graphforget.errors import InputError
from graphforget.safe_files import check_regular

START = "0" * 64  # stands in for the hash before the first entry
FORMAT = 2
REFUSED = "refused"  # in place of a level: noise was drawn, and nothing was released
LARGEST = 2**28  # bytes of a file that is opened
LONGEST = 2**26  # bytes of one value in it
PATIENCE = 3.0  # seconds that one statement may take
APPLICATION = int.from_bytes(b"gfld")
LONGEST_ID = 200
_PREFIXES = {1: b"graphforget-ledger-1\n", 2: b"graphforget-ledger-2\n"}

# The last trigger is there for INSERT OR REPLACE, which removes rows without asking the trigger on DELETE.
_TABLE = """
CREATE TABLE entries (
    number INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    request_id TEXT NOT NULL UNIQUE,
    request_digest TEXT NOT NULL,
    certificate_digest TEXT NOT NULL,
    level TEXT NOT NULL,
    ratio REAL,
    answer TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL{signed}
);
CREATE TRIGGER no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END;
CREATE TRIGGER no_replace BEFORE INSERT ON entries
WHEN EXISTS (SELECT 1 FROM entries WHERE number >= NEW.number OR request_id = NEW.request_id)
BEGIN SELECT RAISE(ABORT, 'entries are only added at the end'); END;
"""
_TABLES = {1: _TABLE.format(signed=""), 2: _TABLE.format(signed=",\n    signer TEXT,\n    signature TEXT")}
_SCHEMA = f"""
PRAGMA journal_mode = WAL;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};
{_TABLES[FORMAT]}
"""


class Broken(InputError):
    """The chain of entries does not hold; the message names the first entry that is not what it must be."""


@dataclass(frozen=True)
class Entry:
    """One answered request."""

    number: int  # 1, 2, ...
    time: str  # ISO 8601, UTC
    request_id: str
    request_digest: str  # hex; salted, so that it names nobody
    certificate_digest: str  # hex SHA-256 of the certificate document
    level: Level | Literal["refused"]
    ratio: float | None  # at most distance / sigma of the release: 0 for exact, None where nothing is proven
    answer: str  # JSON text: the public answer
    previous: str  # hash of the entry before, `START` for the first
    hash: str  # SHA-256 of all of the above
    signer: str | None = None  # public key, hex
    signature: str | None = None  # of the hash, hex


_COLUMNS = tuple(field.name for field in dataclasses.fields(Entry))
_HASHED = tuple(name for name in _COLUMNS if name not in ("hash", "signer", "signature"))

Sign = Callable[[bytes], tuple[str, str]]  # what is signed -> public key and signature, hex


@dataclass(frozen=True)
class Composed:
    """What all releases together tell at most: `epsilon` at this `delta`, or the `reason` why there is none.

    It is public: it follows from the tolerances, which are settings, and not from what was measured.
    """

    releases: int
    epsilon: float | None
    delta: float
    reason: str | None


class Ledger:
    """An SQLite file that only grows, and only by whole entries: `with Ledger(path) as ledger: ...`

    A missing file is created, readable by its owner alone, unless `readonly`. Processes may share one file; each thread
    needs its own `Ledger`. Whatever SQLite or the file system refuses is an `InputError`.
    """

    def __init__(self, path: str | Path, *, readonly: bool = False) -> None:
        self.path = Path(path).absolute()
        self._unusable = f"{self.path} cannot be used as a ledger"
        self.readonly = readonly
        with _one_sentence(self._unusable):
            if not os.path.lexists(self.path):
                if readonly:
                    raise InputError(f"{path} does not exist, a ledger is needed to read from")
                _create(self.path)
            _check_file(self.path)
            address = _address(self.path, readonly=readonly)
            self._connection = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None)
            self._deadline = 0.0
            try:
                self._prepare()
            except BaseException:
                self.close()
                raise

    def _prepare(self) -> None:
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        self._connection.set_progress_handler(lambda: monotonic() > self._deadline, 10_000)
        self._execute("PRAGMA trusted_schema = OFF")
        if self._pragma("application_id") != APPLICATION:
            raise InputError(f"{self.path} is a database of another kind, a ledger is needed")
        self.format = self._pragma("user_version")
        if self.format != FORMAT and not (self.readonly and self.format in _PREFIXES):
            raise InputError(f"{self.path} is a ledger of format {self.format}, this version writes format {FORMAT}")
        objects, expected = _parts(self._execute(_OBJECTS).fetchmany(20)), _objects(self.format)
        if objects != expected:
            which = "columns" if {part[:3] for part in objects} == {part[:3] for part in expected} else "tables"
            raise InputError(f"{self.path} is not a ledger as it was written: its {which} are others")
        self._execute("PRAGMA synchronous = FULL")
        self._execute(f"PRAGMA query_only = {int(self.readonly)}")

    def _pragma(self, name: str) -> int:
        return int(self._execute(f"PRAGMA {name}").fetchone()[0])

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Interrupted where it and the reading of its rows take longer than `PATIENCE`."""
        self._deadline = monotonic() + PATIENCE
        return self._connection.execute(statement, values)

    def entries(self) -> tuple[Entry, ...]:
        """All entries in order, as they are on disk: `check` tells whether they are what was written."""
        return self._select("ORDER BY number")

    def find(self, request_id: str) -> Entry | None:
        """The entry that answered this request, if there is one. What can be no id is an `InputError`."""
        check_id(request_id)
        return next(iter(self._select("WHERE request_id = ?", request_id)), None)

    @property
    def head(self) -> str:
        """The hash of the last entry, `START` if there is none."""
        last = self._last()
        return last.hash if last else START

    def append(
        self,
        *,
        time: str,
        request_id: str,
        request_digest: str,
        certificate_digest: str,
        level: Level | Literal["refused"],
        ratio: float | None,
        answer: str,
        follows: str = START,
        sign: Sign | None = None,
    ) -> Entry:
        """Adds an entry and returns it once it is safely on disk. A request id that is there already is refused.

        `follows` is what the first entry continues from: the head of a ledger of an earlier format, if there was one.
        """
        if self.readonly:
            raise InputError(f"{self.path} was opened for reading only")
        _check_time(time)
        check_id(request_id)
        _check_hex(request_digest, "the digest of the request", shortest=32, longest=128)
        _check_hex(certificate_digest, "the digest of the certificate", shortest=64, longest=64)
        ratio = _checked_ratio(level, ratio)
        _check_json(answer)
        with self._transaction():
            if self.find(request_id):
                raise InputError(f"request {request_id!r} is in the ledger already, each id can be answered once")
            last = self._last()
            unsigned = Entry(
                number=last.number + 1 if last else 1,
                time=time,
                request_id=request_id,
                request_digest=request_digest,
                certificate_digest=certificate_digest,
                level=level,
                ratio=ratio,
                answer=answer,
                previous=last.hash if last else follows,
                hash="",
            )
            entry = dataclasses.replace(unsigned, hash=_hash(unsigned))
            if sign is not None:
                signer, signature = sign(signed_bytes(entry))
                entry = dataclasses.replace(entry, signer=signer, signature=signature)
            self._insert(entry)
        return entry

    def take_over(self, entries: Iterable[Entry], *, follows: str = START) -> None:
        """Begins with the entries of another ledger, as they are and all at once. Only an empty one can."""
        entries = tuple(entries)
        check(entries, follows=follows)
        with self._transaction():
            if self._last():
                raise InputError(f"{self.path} has entries already, those of another ledger cannot come before them")
            for entry in entries:
                self._insert(entry)

    def _insert(self, entry: Entry) -> None:
        marks = ", ".join("?" * len(_COLUMNS))
        self._execute(f"INSERT INTO entries VALUES ({marks})", dataclasses.astuple(entry))

    def close(self) -> None:
        """The last one to close a ledger leaves the one file behind, without SQLite's -wal and -shm files."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _last(self) -> Entry | None:
        return next(iter(self._select("ORDER BY number DESC LIMIT 1")), None)

    def _select(self, which: str, *values: str) -> tuple[Entry, ...]:
        with _one_sentence(self._unusable):
            columns = (
                _COLUMNS if self.format > 1 else [name for name in _COLUMNS if name not in ("signer", "signature")]
            )
            rows = self._execute(f"SELECT {', '.join(columns)} FROM entries {which}", values).fetchall()
        return tuple(self._entry(dict(zip(columns, row, strict=True))) for row in rows)

    def _entry(self, row: dict[str, Any]) -> Entry:
        """SQLite keeps whatever was put into a column, whatever its type."""
        try:
            return read_fields(Entry, row, f"entry {row['number']!r:.20}")
        except InputError as error:
            message = f"the ledger is broken at entry {row['number']}: its hash is not that of its content"
            raise Broken(f"{message}, {error}") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _one_sentence(self._unusable):
            self._execute("BEGIN IMMEDIATE")
            try:
                yield
                self._execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._execute("ROLLBACK")
                raise


_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_schema"


@cache
def _objects(format: int) -> set[tuple[Any, ...]]:
    """The tables and triggers of a ledger, by the words that made them.

    Others could make a query run for ever, or answer what was never written.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_TABLES[format])
        return _parts(connection.execute(_OBJECTS).fetchall())


def _parts(rows: Iterable[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """The words without the spaces between them, which SQLite does not always keep."""
    return {(*names, "".join(str(sql).split())) for *names, sql in rows}


def check(entries: Iterable[Entry], *, follows: str = START, format: int = FORMAT) -> None:
    """Raises `Broken` unless these are the entries 1, 2, ... of an unbroken chain that continues from `follows`."""
    previous = follows
    for number, entry in enumerate(entries, start=1):
        if entry.number != number:
            raise Broken(f"the ledger is broken at entry {number}: number {entry.number} stands in its place")
        if entry.previous != previous:
            raise Broken(f"the ledger is broken at entry {number}: it does not continue from what stands before it")
        if not _is_intact(entry, format):
            raise Broken(f"the ledger is broken at entry {number}: its hash is not that of its content")
        previous = entry.hash


def signed_bytes(entry: Entry) -> bytes:
    """What an entry's signature covers: by its hash everything that the entry records, and everything before it."""
    return b"graphforget-ledger-entry\n" + entry.hash.encode()


def composed(entries: Iterable[Entry], *, delta: float) -> Composed:
    """The epsilon of all these releases seen together, which takes a proof for each of them.

    Their ratios add up in squares (docs/maths.md, section 7), and exact releases add nothing. The entries are taken as
    they are: `check` them first.
    """
    entries = sorted(entries, key=lambda entry: entry.number)
    ratios = [_proven_ratio(entry) for entry in entries]
    epsilon = epsilon_of(ratio=composed_ratio(ratio for ratio in ratios if ratio is not None), delta=delta)
    unproven = next((entry for entry, ratio in zip(entries, ratios, strict=True) if ratio is None), None)
    reason = None
    if unproven:
        reason = f"entry {unproven.number} is {unproven.level}, so nothing is proven about its release"
    elif math.isinf(epsilon):
        reason = "the noise of all releases together is too little for any epsilon"
    return Composed(releases=len(entries), epsilon=None if reason else epsilon, delta=delta, reason=reason)


def _proven_ratio(entry: Entry) -> float | None:
    return entry.ratio if entry.level in ("exact", "certified", REFUSED) else None


def _is_intact(entry: Entry, format: int) -> bool:
    try:
        return entry.hash == _hash(entry, format)
    except (TypeError, ValueError):  # bytes or infinity, which `append` never writes
        return False


def _hash(entry: Entry, format: int = FORMAT) -> str:
    content = {name: getattr(entry, name) for name in _HASHED}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(_PREFIXES[format] + text.encode()).hexdigest()


def _check_file(path: Path) -> None:
    """SQLite would wait for a pipe and read a device."""
    for place in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        if os.path.lexists(place):
            check_regular(place, place.lstat(), largest=LARGEST)


def _create(path: Path) -> None:
    """Makes an empty ledger; one that another process made in the meantime stays."""
    with suppress(FileExistsError), _new_file(path) as staging, closing(sqlite3.connect(staging)) as connection:
        connection.executescript(_SCHEMA)


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """A file of mode 600 to write to, which becomes `path` when it is whole; an existing one is a `FileExistsError`.

    Nobody ever sees a ledger without its tables. A link, unlike a rename, cannot take the place of another file.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
        log = _log(path)
        if log.exists() and not path.exists():  # SQLite would play it into the new file
            raise InputError(f"{log} is left of a ledger that is gone, put it back or move this file away")
        os.link(name, path)
        _sync(path.parent)
    finally:
        os.unlink(name)


def _sync(folder: Path) -> None:
    """Makes a new name in the folder outlast a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _address(path: Path, *, readonly: bool) -> str:
    """How SQLite opens the file: never creating it.

    A reader takes the file as it lies and leaves no trace, unless there is a log, of a writer that is at work or was
    killed: then it takes part in the locking, for which SQLite keeps two files beside the ledger.
    """
    as_it_lies = readonly and not (_log(path).exists() and _log(path).stat().st_size)
    return path.as_uri() + ("?mode=ro&immutable=1" if as_it_lies else "?mode=rw")


def _log(path: Path) -> Path:
    """SQLite's write-ahead log."""
    return path.with_name(f"{path.name}-wal")


@contextmanager
def _one_sentence(what: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise InputError(f"{what}: {' '.join(str(error).split()).rstrip('.')}") from error


def _check_time(time: str) -> None:
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)"
    try:
        if re.fullmatch(pattern, time, re.ASCII) and datetime.fromisoformat(time):
            return
    except ValueError:
        pass
    raise InputError(f"the time is {time!r}, a time in UTC such as 2026-01-31T12:00:00Z is needed")


def check_id(request_id: str) -> None:
    if not request_id.strip():
        raise InputError("the request id is blank, every request needs one")
    if not request_id.isprintable():
        raise InputError(f"the request id is {request_id!r}, only characters that can be printed are allowed")
    if len(request_id) > LONGEST_ID:
        raise InputError(f"the request id has {len(request_id)} characters, up to {LONGEST_ID} are allowed")


def _check_hex(digest: str, what: str, *, shortest: int, longest: int) -> None:
    """The lower limit keeps out what is no digest but a number, which could be somebody's."""
    if not re.fullmatch(rf"[0-9a-f]{{{shortest},{longest}}}", digest):
        allowed = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
        raise InputError(f"{what} is {digest!r}, {allowed} hexadecimal digits in lower case are needed")


def _checked_ratio(level: Level | Literal["refused"], ratio: float | None) -> float | None:
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


def _check_json(answer: str) -> None:
    try:
        answer.encode()
        json.loads(answer, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the answer is not JSON: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
