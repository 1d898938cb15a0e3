"""The ledger: deletion requests and the releases that answered them, in an append-only SQLite file.

Entries hold only public documents and salted digests. `Chain` finds a change, a gap and a false start; a signature
covers all of an entry. Whoever can write the file can still cut off its end, or replace it by an older copy. Against
that, keep `Ledger.head` in another place and compare.
"""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Literal, Self

from graphforget.certificates.chain import (
    COLUMNS,
    FORMAT,
    PREFIXES,
    START,
    BrokenChain,
    Chain,
    Entry,
    entry_hash,
    signed_bytes,
)
from graphforget.certificates.entry_fields import check_hex, check_id, check_json, check_time, checked_ratio
from graphforget.certificates.levels import Level
from graphforget.errors import InputError
from graphforget.files import check_regular, error_reason
from graphforget.validation import read_fields

LARGEST = 2**28  # bytes of a file that is opened
LONGEST = 2**26  # bytes of one value in it
PATIENCE = 3.0  # seconds that one statement may take
APPLICATION = int.from_bytes(b"gfld")
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
Sign = Callable[[bytes], tuple[str, str]]  # what is signed -> public key and signature, hex


class Ledger:
    """An SQLite file to which entries are only added: `with Ledger(path) as ledger: ...`

    A missing file is created, readable by its owner alone, unless `readonly`. Processes may share one file; each thread
    needs its own `Ledger`. Errors of SQLite and of the file system become an `InputError`.
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
        if self.format != FORMAT and not (self.readonly and self.format in PREFIXES):
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
        """Executes a statement. It is interrupted if it takes, with the reading of its rows, longer than `PATIENCE`."""
        self._deadline = monotonic() + PATIENCE
        return self._connection.execute(statement, values)

    def entries(self) -> tuple[Entry, ...]:
        """All entries in order, as they are on disk: `Chain` checks whether they are what was written."""
        return self._select("ORDER BY number")

    def find(self, request_id: str) -> Entry | None:
        """The entry with this request id, or None. Raises `InputError` if it cannot be an id."""
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
        """Adds an entry and returns it once it is safely on disk. Raises `InputError` if the id was used before.

        `follows` is what the first entry continues from: the head of a ledger of an earlier format, if there was one.
        """
        if self.readonly:
            raise InputError(f"{self.path} was opened for reading only")
        check_time(time)
        check_id(request_id)
        check_hex(request_digest, "the digest of the request", shortest=32, longest=128)
        check_hex(certificate_digest, "the digest of the certificate", shortest=64, longest=64)
        ratio = checked_ratio(level, ratio)
        check_json(answer)
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
            entry = dataclasses.replace(unsigned, hash=entry_hash(unsigned))
            if sign is not None:
                signer, signature = sign(signed_bytes(entry))
                entry = dataclasses.replace(entry, signer=signer, signature=signature)
            self._insert(entry)
        return entry

    def import_entries(self, chain: Chain) -> None:
        """Adds the entries of another ledger, unchanged and all at once. Only an empty ledger can import any."""
        with self._transaction():
            if self._last():
                raise InputError(f"{self.path} has entries already, only an empty ledger can import those of another")
            for entry in chain.entries:
                self._insert(entry)

    def _insert(self, entry: Entry) -> None:
        marks = ", ".join("?" * len(COLUMNS))
        self._execute(f"INSERT INTO entries VALUES ({marks})", dataclasses.astuple(entry))

    def close(self) -> None:
        """Closes the file. The last one to close it removes SQLite's -wal and -shm files."""
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
            columns = COLUMNS if self.format > 1 else [name for name in COLUMNS if name not in ("signer", "signature")]
            rows = self._execute(f"SELECT {', '.join(columns)} FROM entries {which}", values).fetchall()
        return tuple(self._entry(dict(zip(columns, row, strict=True))) for row in rows)

    def _entry(self, row: dict[str, Any]) -> Entry:
        """An entry from a row. SQLite accepts values of any type in a column, so types are checked here."""
        try:
            return read_fields(Entry, row, f"entry {row['number']!r:.20}")
        except InputError as error:
            message = f"the ledger is broken at entry {row['number']}: its hash is not that of its content"
            raise BrokenChain(f"{message}, {error}") from error

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
    """The tables and triggers of a ledger, as SQL.

    Others could make a query run for ever, or return rows that were never written.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_TABLES[format])
        return _parts(connection.execute(_OBJECTS).fetchall())


def _parts(rows: Iterable[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """The SQL without spaces, which SQLite does not always keep."""
    return {(*names, "".join(str(sql).split())) for *names, sql in rows}


def _check_file(path: Path) -> None:
    """SQLite would wait for a pipe and read a device."""
    for place in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        if os.path.lexists(place):
            check_regular(place, place.lstat(), largest=LARGEST)


def _create(path: Path) -> None:
    """Makes an empty ledger. If another process makes one at the same time, that one stays."""
    with suppress(FileExistsError), _new_file(path) as staging, closing(sqlite3.connect(staging)) as connection:
        connection.executescript(_SCHEMA)


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """A file of mode 600 to write to, which is then linked to `path`. Raises `FileExistsError` if `path` exists.

    Nobody ever sees a ledger without its tables. A link, unlike a rename, cannot take the place of another file.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
        log = _log(path)
        if log.exists() and not path.exists():  # SQLite would apply it to the new file
            raise InputError(f"{log} is the log of a ledger that is missing, put that back or move this file away")
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
def _one_sentence(message: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise InputError(f"{message}: {error_reason(error)}") from error
