"""The ledger: what is written can be read, what is changed is found, and no crash, writer or reader gets in between."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import signal
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphforget.certificates.chain import FORMAT, START, BrokenChain, Chain, Entry, signed_bytes
from graphforget.certificates.ledger import APPLICATION, Ledger
from graphforget.certificates.releases import Composition, compose
from graphforget.errors import InputError
from graphforget.privacy.gaussian import epsilon_of

NAN, INF = float("nan"), float("inf")
DELTA = 1e-5
GOOD: dict[str, Any] = {
    "time": "2026-01-31T12:00:00Z",
    "request_id": "request 1",
    "request_digest": "ab" * 32,
    "certificate_digest": "cd" * 32,
    "level": "certified",
    "ratio": 0.1,
    "answer": '{"status": "done"}',
}


def request(number: int, **other: Any) -> dict[str, Any]:
    return GOOD | {"request_id": f"request {number}", "ratio": number / 10} | other


def write(path: Path, count: int = 3) -> tuple[Entry, ...]:
    with Ledger(path) as ledger:
        return tuple(ledger.append(**request(number)) for number in range(1, count + 1))


def read(path: Path) -> tuple[Entry, ...]:
    with Ledger(path, readonly=True) as ledger:
        return ledger.entries()


def raw(path: Path) -> closing[sqlite3.Connection]:
    """The file as anybody with sqlite3 has it, each statement a transaction."""
    return closing(sqlite3.connect(path, isolation_level=None))


def tamper(path: Path, statement: str, *values: Any) -> None:
    """Somebody with sqlite3, who takes the triggers away and puts them back."""
    with raw(path) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        assert len(triggers) == 3
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        assert connection.execute(statement, values).rowcount == 1
        for _, sql in triggers:
            connection.execute(sql)


def row(entry: Entry) -> tuple[Any, ...]:
    return dataclasses.astuple(entry)


def insert(connection: sqlite3.Connection, entry: Entry, how: str = "INSERT") -> None:
    marks = ", ".join("?" * len(row(entry)))
    connection.execute(f"{how} INTO entries VALUES ({marks})", row(entry))


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def in_child(work: Callable[[], object]) -> int:
    """Starts the work in a forked process and gives its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def message_of(error: pytest.ExceptionInfo[InputError]) -> str:
    text = str(error.value)
    assert text
    assert "\n" not in text
    assert not text.endswith(".")
    return text


def test_what_is_appended_is_read_again(path: Path) -> None:
    with Ledger(path) as ledger:
        assert ledger.entries() == ()
        assert ledger.head == START == "0" * 64
        assert ledger.find("request 1") is None
        certified = ledger.append(**request(1, ratio=1 / 3, answer='{"text": "über"}', request_id="Ünïcode ✓"))
        exact = ledger.append(**request(2, level="exact", ratio=0))
        empirical = ledger.append(**request(3, level="empirical", ratio=None))
        assert ledger.head == empirical.hash
    assert read(path) == (certified, exact, empirical)
    assert dataclasses.asdict(certified).items() >= (GOOD | {"ratio": 1 / 3, "answer": '{"text": "über"}'}).items() - {
        ("request_id", "request 1")
    }
    assert (certified.request_id, exact.ratio, empirical.ratio) == ("Ünïcode ✓", 0.0, None)
    with Ledger(path) as ledger:
        assert ledger.find("request 2") == exact
        assert ledger.find("Ünïcode ✓") == certified
        assert ledger.find("request") is None
        assert ledger.head == empirical.hash
        assert ledger.append(**request(4)).previous == empirical.hash


def test_entries_are_chained(path: Path) -> None:
    first, second, third = write(path)
    assert [entry.number for entry in (first, second, third)] == [1, 2, 3]
    assert (first.previous, second.previous, third.previous) == (START, first.hash, second.hash)
    assert len({first.hash, second.hash, third.hash}) == 3
    Chain(read(path))
    Chain(())


def test_the_hash_is_that_of_the_documented_form(path: Path) -> None:
    """Anybody can compute it, so that no other version of this package is needed to check a ledger."""
    (entry,) = write(path, 1)
    text = (
        '{"answer":"{\\"status\\": \\"done\\"}","certificate_digest":"' + "cd" * 32 + '","level":"certified",'
        '"number":1,"previous":"' + "0" * 64 + '","ratio":0.1,"request_digest":"' + "ab" * 32 + '",'
        '"request_id":"request 1","time":"2026-01-31T12:00:00Z"}'
    )
    assert entry.hash == hashlib.sha256(b"graphforget-ledger-2\n" + text.encode()).hexdigest()


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(ratio=st.floats(min_value=0, allow_infinity=False) | st.integers(0, 10**6), answer=st.text())
def test_every_ratio_and_answer_survives_the_file(tmp_path_factory: Any, ratio: float, answer: str) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    with Ledger(path) as ledger:
        entry = ledger.append(**request(1, ratio=ratio, answer=json.dumps(answer)))
    Chain(read(path))
    assert (read(path)[0].ratio, read(path)[0].answer) == (ratio, json.dumps(answer))
    assert read(path) == (entry,)


def test_minus_zero_is_zero(path: Path) -> None:
    """SQLite keeps no sign of 0, so its hash would not be found again."""
    with Ledger(path) as ledger:
        assert math.copysign(1, ledger.append(**request(1, level="exact", ratio=-0.0)).ratio or 0.0) == 1
        Chain(ledger.entries())


TAMPERED: dict[str, Any] = {
    "number": 7,
    "time": "2026-02-01T12:00:00Z",
    "request_id": "request 9",
    "request_digest": "ba" * 32,
    "certificate_digest": "dc" * 32,
    "level": "exact",
    "ratio": 0.0,
    "answer": '{"status": "denied"}',
    "previous": "1" * 64,
    "hash": "2" * 64,
}


def test_every_field_is_tampered_with() -> None:
    """The signature is of the hash, so it cannot be under it: `test_signing.py` tampers with these two."""
    assert [*TAMPERED, "signer", "signature"] == [field.name for field in dataclasses.fields(Entry)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("field", TAMPERED)
def test_a_changed_field_is_found(path: Path, field: str, number: int) -> None:
    write(path)
    Chain(read(path))
    tamper(path, f"UPDATE entries SET {field} = ? WHERE number = ?", TAMPERED[field], number)
    with pytest.raises(BrokenChain, match=f"broken at entry {number}:") as error:
        Chain(read(path))
    assert isinstance(error.value, InputError)
    message_of(error)


@pytest.mark.parametrize(("field", "value"), [("ratio", INF), ("ratio", None), ("ratio", "x"), ("answer", b"\xff")])
def test_what_has_no_hash_is_found(path: Path, field: str, value: Any) -> None:
    """Values that `append` never writes, with an empty hash beside them."""
    write(path)
    tamper(path, f"UPDATE entries SET {field} = ?, hash = '' WHERE number = 2", value)
    with pytest.raises(BrokenChain, match="broken at entry 2: its hash"):
        Chain(read(path))


@pytest.mark.parametrize("number", [1, 2])
def test_a_removed_entry_is_found(path: Path, number: int) -> None:
    write(path)
    tamper(path, "DELETE FROM entries WHERE number = ?", number)
    with pytest.raises(BrokenChain, match=f"broken at entry {number}: number {number + 1} stands in its place"):
        Chain(read(path))


def test_a_removed_entry_is_found_after_renumbering(path: Path) -> None:
    write(path)
    tamper(path, "DELETE FROM entries WHERE number = 2")
    tamper(path, "UPDATE entries SET number = 2 WHERE number = 3")
    with pytest.raises(BrokenChain, match="broken at entry 2: it does not continue"):
        Chain(read(path))


def test_a_removed_end_shows_in_the_head_alone(path: Path) -> None:
    entries = write(path)
    tamper(path, "DELETE FROM entries WHERE number = 3")
    with Ledger(path) as ledger:
        Chain(ledger.entries())
        assert ledger.head == entries[1].hash != entries[2].hash


def test_order_counts() -> None:
    first, second = (Entry(n, "", "", "", "", "exact", 0.0, "", START, "") for n in (1, 2))
    with pytest.raises(BrokenChain, match="broken at entry 1: number 2"):
        Chain((second, first))


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE entries SET level = 'exact' WHERE number = 2", "never changed"),
        ("UPDATE entries SET number = 9 WHERE number = 3", "never changed"),
        ("DELETE FROM entries WHERE number = 3", "never removed"),
        ("DELETE FROM entries", "never removed"),
    ],
)
def test_triggers_refuse_changes(path: Path, statement: str, said: str) -> None:
    entries = write(path)
    with raw(path) as connection, pytest.raises(sqlite3.IntegrityError, match=said):
        connection.execute(statement)
    assert read(path) == entries


@pytest.mark.parametrize("change", [{"number": 3}, {"number": 2, "request_id": "x"}, {"number": 4}])
def test_triggers_refuse_replacement(path: Path, change: dict[str, Any]) -> None:
    """INSERT OR REPLACE by the number or by the id removes a row without a DELETE."""
    entries = write(path)
    new = dataclasses.replace(entries[2], **change, answer='"other"')
    with raw(path) as connection, pytest.raises(sqlite3.IntegrityError, match="only added at the end"):
        insert(connection, new, "INSERT OR REPLACE")
    assert read(path) == entries


def test_an_id_is_answered_once(path: Path) -> None:
    entries = write(path)
    with Ledger(path) as ledger:
        with pytest.raises(InputError, match="request 'request 2' is in the ledger already") as error:
            ledger.append(**request(2, answer='"other"'))
        message_of(error)
        assert ledger.entries() == entries
        assert ledger.append(**request(4)).number == 4
    assert read(path)[:3] == entries


DEEP = "[" * 100_000
BAD: list[tuple[dict[str, Any], str]] = [
    ({"request_id": ""}, "the request id is blank"),
    ({"request_id": " \t"}, "the request id is blank"),
    ({"request_id": "a\nb"}, "only characters that can be printed"),
    ({"request_id": "a\x00b"}, "only characters that can be printed"),
    ({"request_id": "a\x7fb"}, "only characters that can be printed"),
    ({"request_id": "a\u202eb"}, "only characters that can be printed"),
    ({"request_id": "a\udcff"}, "only characters that can be printed"),
    ({"request_id": "a" * 201}, "has 201 characters, up to 200"),
    ({"level": "perfect"}, "the level is 'perfect', exact, certified, conditional, empirical are possible"),
    ({"level": ""}, "the level is ''"),
    ({"ratio": -0.1}, "the ratio is -0.1, a finite number from 0"),
    ({"ratio": NAN}, "the ratio is nan, a finite number from 0"),
    ({"ratio": INF}, "the ratio is inf, a finite number from 0"),
    ({"ratio": None}, "the ratio is missing, a release of level certified"),
    ({"level": "exact", "ratio": None}, "the ratio is missing, a release of level exact"),
    ({"level": "exact", "ratio": 0.1}, "an exact release has ratio 0"),
    ({"level": "conditional", "ratio": 0.1}, "a release of level conditional has none"),
    ({"level": "conditional", "ratio": 0.0}, "a release of level conditional has none"),
    ({"level": "empirical", "ratio": 0.0}, "a release of level empirical has none"),
    ({"answer": ""}, "the answer is not JSON"),
    ({"answer": "{'a': 1}"}, "the answer is not JSON"),
    ({"answer": '{"a": 1} x'}, "the answer is not JSON"),
    ({"answer": '{"epsilon": NaN}'}, "the answer is not JSON: NaN"),
    ({"answer": "-Infinity"}, "the answer is not JSON: -Infinity"),
    ({"answer": '"\udcff"'}, "the answer is not JSON"),
    ({"answer": DEEP}, "the answer is not JSON"),
    ({"time": "yesterday"}, "the time is 'yesterday'"),
    ({"time": "2026-01-31T12:00:00"}, "a time in UTC"),
    ({"time": "2026-01-31T12:00:00+01:00"}, "a time in UTC"),
    ({"time": "2026-02-31T12:00:00Z"}, "a time in UTC"),
    ({"time": "2026-01-31\ud80012:00:00Z"}, "a time in UTC"),
    ({"request_digest": ""}, "the digest of the request is '', 32 to 128"),
    ({"request_digest": "12345"}, "the digest of the request is '12345'"),
    ({"request_digest": "x" * 64}, "the digest of the request"),
    ({"certificate_digest": "CD" * 32}, "the digest of the certificate"),
    ({"certificate_digest": "cd" * 31}, "64 hexadecimal digits"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("change", "said"), BAD, ids=[repr(change)[:40] for change, _ in BAD])
def test_bad_input_is_refused_in_one_sentence(path: Path, change: dict[str, Any], said: str) -> None:
    entries = write(path, 1)
    with Ledger(path) as ledger:
        with pytest.raises(InputError) as error:
            ledger.append(**request(2, **change))
        assert said in message_of(error)
        assert ledger.entries() == entries
        ledger.append(**request(2))


@pytest.mark.parametrize(
    "change",
    [
        {"request_id": "a" * 200},
        {"level": "exact", "ratio": 0},
        {"level": "certified", "ratio": 0.0},
        {"level": "certified", "ratio": 1e300},
        {"level": "conditional", "ratio": None},
        {"level": "empirical", "ratio": None},
        {"answer": "null"},
        {"time": "2026-01-31T12:00:00.123456+00:00"},
        {"request_digest": "0" * 128},
    ],
    ids=repr,
)
def test_good_input_is_taken(path: Path, change: dict[str, Any]) -> None:
    with Ledger(path) as ledger:
        ledger.append(**request(1, **change))
        (entry,) = ledger.entries()
        Chain((entry,))
    assert {name: getattr(entry, name) for name in change} == change


@pytest.mark.parametrize("bad", ["", "a\nb", "a\udcff"])
def test_find_refuses_what_can_be_no_id(path: Path, bad: str) -> None:
    with Ledger(path) as ledger, pytest.raises(InputError, match="the request id"):
        ledger.find(bad)


def filled(path: Path, *releases: tuple[str, float | None]) -> tuple[Entry, ...]:
    with Ledger(path) as ledger:
        for number, (level, ratio) in enumerate(releases, start=1):
            ledger.append(**request(number, level=level, ratio=ratio))
        return ledger.entries()


def test_releases_compose(path: Path) -> None:
    entries = filled(path, ("certified", 0.1), ("certified", 0.2), ("certified", 0.4))
    together = epsilon_of(ratio=math.sqrt(0.1**2 + 0.2**2 + 0.4**2), delta=DELTA)
    result = compose(entries, delta=DELTA)
    assert (result.releases, result.delta, result.reason) == (3, DELTA, None)
    assert result.epsilon == pytest.approx(together, rel=1e-9)
    assert result.epsilon is not None
    assert result.epsilon > epsilon_of(ratio=0.4, delta=DELTA) > 0
    assert compose(reversed(entries), delta=DELTA) == result


def test_exact_releases_cost_nothing(path: Path) -> None:
    entries = filled(path, ("exact", 0), ("certified", 0.3), ("exact", 0))
    assert compose(entries, delta=DELTA) == Composition(3, epsilon_of(ratio=0.3, delta=DELTA), DELTA, None)
    assert compose(entries[:1], delta=DELTA) == Composition(1, 0.0, DELTA, None)
    assert compose((), delta=DELTA) == Composition(0, 0.0, DELTA, None)


@pytest.mark.parametrize(("first", "second"), [("conditional", "empirical"), ("empirical", "conditional")])
def test_one_unproven_release_leaves_no_epsilon(path: Path, first: str, second: str) -> None:
    entries = filled(path, ("certified", 0.1), (first, None), (second, None), ("exact", 0))
    said = f"entry 2 is {first}, so nothing is proven about its release"
    assert compose(entries, delta=DELTA) == Composition(4, None, DELTA, said)
    assert compose(reversed(entries), delta=DELTA).reason == said


def test_a_ratio_of_an_unproven_level_does_not_count(path: Path) -> None:
    (entry,) = filled(path, ("certified", 0.1))
    assert compose([dataclasses.replace(entry, level="conditional")], delta=DELTA).epsilon is None


def test_too_little_noise_leaves_no_epsilon(path: Path) -> None:
    entries = filled(path, ("certified", 1e300))
    assert compose(entries, delta=DELTA) == Composition(
        1, None, DELTA, "the noise of all releases together is too little for any epsilon"
    )


@pytest.mark.parametrize("level", ["certified", "conditional"])
@pytest.mark.parametrize("delta", [0.0, 1.0, NAN])
def test_delta_is_checked(path: Path, level: str, delta: float) -> None:
    entries = filled(path, (level, 0.1 if level == "certified" else None))
    with pytest.raises(InputError, match="delta is"):
        compose(entries, delta=delta)


def test_what_is_promised_to_sqlite(path: Path) -> None:
    with Ledger(path) as ledger:
        settings = {
            name: ledger._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "busy_timeout", "application_id", "user_version")
        }
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "busy_timeout": 30_000,
        "application_id": APPLICATION,
        "user_version": FORMAT,
    }


@pytest.mark.parametrize("killed_before", ["BEGIN", "INSERT", "COMMIT"])
def test_a_killed_writer_leaves_the_old_entries(path: Path, killed_before: str) -> None:
    entries = write(path, 2)

    def die() -> None:
        def trace(statement: str) -> None:
            if statement.startswith(killed_before):
                os.kill(os.getpid(), signal.SIGKILL)

        ledger = Ledger(path)
        ledger._connection.set_trace_callback(trace)
        ledger.append(**request(3))

    assert exit_code(in_child(die)) == -signal.SIGKILL
    assert read(path) == entries
    with Ledger(path) as ledger:
        new = ledger.append(**request(3))
        assert ledger.entries() == (*entries, new)
    Chain(read(path))
    assert names(path.parent) == {path.name}


def test_an_entry_outlives_its_writer(path: Path) -> None:
    """What `append` has returned is there, also if the process never closed the ledger."""

    def die() -> None:
        Ledger(path).append(**request(1))
        os.kill(os.getpid(), signal.SIGKILL)

    assert exit_code(in_child(die)) == -signal.SIGKILL
    assert f"{path.name}-wal" in names(path.parent)
    (entry,) = read(path)
    assert entry.request_id == "request 1"
    Chain((entry,))


def test_many_writers_make_one_chain(path: Path) -> None:
    """They also race for creating the file."""
    writers, each = 3, 10

    def work(writer: int) -> None:
        for number in range(each):
            with Ledger(path) as ledger:
                ledger.append(**request(number, request_id=f"{writer}/{number}"))

    pids = [in_child(lambda writer=writer: work(writer)) for writer in range(writers)]  # type: ignore[misc]
    assert [exit_code(pid) for pid in pids] == [0] * writers
    entries = read(path)
    Chain(entries)
    assert [entry.number for entry in entries] == list(range(1, writers * each + 1))
    for writer in range(writers):
        own = [entry.request_id for entry in entries if entry.request_id.startswith(f"{writer}/")]
        assert own == [f"{writer}/{number}" for number in range(each)]
    assert names(path.parent) == {path.name}


def test_a_writer_waits_for_another(path: Path) -> None:
    """Without a timeout the second would be turned away at once."""
    write(path, 1)
    started, ready = os.pipe()

    def work() -> None:
        with raw(path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            os.write(ready, b"x")
            signal.sigtimedwait([], 0.3)
            connection.execute("ROLLBACK")

    pid = in_child(work)
    assert os.read(started, 1) == b"x"
    with Ledger(path) as ledger:
        assert ledger.append(**request(2)).number == 2
    assert exit_code(pid) == 0


@pytest.fixture
def unfinished(path: Path) -> Iterator[tuple[Entry, ...]]:
    """Two entries in the ledger, and a third one that a writer has not committed yet."""
    entries = write(path, 3)
    path.unlink()
    committed = write(path, 2)
    with raw(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        insert(connection, entries[2])
        assert len(connection.execute("SELECT * FROM entries").fetchall()) == 3
        yield committed


def test_a_reader_sees_what_is_committed(path: Path, unfinished: tuple[Entry, ...]) -> None:
    for readonly in (True, False):
        with Ledger(path, readonly=readonly) as ledger:
            assert ledger.entries() == unfinished
            assert ledger.head == unfinished[-1].hash


def test_a_reader_sees_whole_entries_while_somebody_appends(path: Path) -> None:
    write(path, 1)

    def work() -> None:
        with Ledger(path) as ledger:
            for number in range(2, 32):
                ledger.append(**request(number))

    pid = in_child(work)
    seen = [read(path) for _ in range(10)]
    assert exit_code(pid) == 0
    entries = read(path)
    assert len(entries) == 31
    for some in seen:
        assert some
        assert some == entries[: len(some)]
        Chain(some)


# -- signatures and ledgers of an earlier format ---------------------------------------------------------------------


def test_what_is_signed_is_the_hash_of_the_whole_entry(path: Path) -> None:
    asked: list[bytes] = []

    def sign(content: bytes) -> tuple[str, str]:
        asked.append(content)
        return "the signer", "the signature"

    with Ledger(path) as ledger:
        entry = ledger.append(**request(1), sign=sign)
        bare = ledger.append(**request(2))
    assert asked == [signed_bytes(entry)] == [b"graphforget-ledger-entry\n" + entry.hash.encode()]
    assert (entry.signer, entry.signature) == ("the signer", "the signature")
    assert (bare.signer, bare.signature) == (None, None)
    assert read(path) == (entry, bare)
    Chain((entry, bare))


def test_a_refused_entry_counts_as_a_release(path: Path) -> None:
    """Its noise was drawn. Without a ratio nothing is known of it."""
    entries = filled(path, ("certified", 0.3), ("refused", 0.4))
    Chain(read(path))
    assert compose(entries, delta=DELTA) == Composition(2, epsilon_of(ratio=0.5, delta=DELTA), DELTA, None)
    unknown = filled(path.with_name("unknown"), ("certified", 0.3), ("refused", None))
    said = "entry 2 is refused, so nothing is proven about its release"
    assert compose(unknown, delta=DELTA) == Composition(2, None, DELTA, said)


def of_format_1(path: Path, count: int = 2) -> tuple[Entry, ...]:
    """A ledger as the earlier version wrote it: without signatures, under another prefix."""
    entries: list[Entry] = []
    for number in range(1, count + 1):
        content = {"number": number, **request(number), "previous": entries[-1].hash if entries else START}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(b"graphforget-ledger-1\n" + text.encode()).hexdigest()
        entries.append(Entry(**content, hash=digest))
    write(path, 0)
    with raw(path) as connection:
        for column in ("signer", "signature"):
            connection.execute(f"ALTER TABLE entries DROP COLUMN {column}")
        for entry in entries:
            connection.execute(f"INSERT INTO entries VALUES ({', '.join('?' * 10)})", row(entry)[:10])
        connection.execute("PRAGMA user_version = 1")
    return tuple(entries)


def test_a_ledger_of_the_earlier_format_is_read_and_not_written(path: Path) -> None:
    entries = of_format_1(path)
    with Ledger(path, readonly=True) as ledger:
        assert ledger.format == 1
        assert ledger.entries() == entries
        assert ledger.head == entries[-1].hash
    Chain(entries, format=1)
    with pytest.raises(BrokenChain, match="broken at entry 1: its hash"):
        Chain(entries)  # no entry passes for one of this format
    with pytest.raises(InputError, match=f"is a ledger of format 1, this version writes format {FORMAT}"):
        Ledger(path)


def test_a_ledger_goes_on_from_the_head_of_an_earlier_one(path: Path) -> None:
    head = of_format_1(path.with_name("earlier"))[-1].hash
    with Ledger(path) as ledger:
        first = ledger.append(**request(1), follows=head)
        second = ledger.append(**request(2), follows=head)
    assert (first.previous, second.previous) == (head, first.hash)
    Chain((first, second), follows=head)
    for other in (START, "1" * 64):
        with pytest.raises(BrokenChain, match="broken at entry 1: it does not continue"):
            Chain((first, second), follows=other)
    with Ledger(path.with_name("next")) as ledger:
        with pytest.raises(BrokenChain):
            ledger.import_entries(Chain((first, second)))
        ledger.import_entries(Chain((first, second), follows=head))
        assert ledger.entries() == (first, second)


def test_files_are_private_and_go_away(path: Path) -> None:
    before = os.umask(0)
    try:
        with Ledger(path) as ledger:
            ledger.append(**request(1))
            beside = {path.name, f"{path.name}-wal", f"{path.name}-shm"}
            assert names(path.parent) == beside
            assert {mode(path.parent / name) for name in beside} == {0o600}
            with Ledger(path):
                pass
            assert ledger.find("request 1")
    finally:
        os.umask(before)
    assert names(path.parent) == {path.name}
    assert mode(path) == 0o600


def test_a_reader_creates_nothing(path: Path) -> None:
    for missing in (path, path.parent / "folder" / "ledger.sqlite"):
        with pytest.raises(InputError, match="does not exist") as error:
            Ledger(missing, readonly=True)
        message_of(error)
    assert names(path.parent) == set()
    write(path)
    before = path.read_bytes()
    with Ledger(path, readonly=True) as ledger:
        assert len(ledger.entries()) == 3
        with pytest.raises(InputError, match="opened for reading only"):
            ledger.append(**request(4))
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            ledger._connection.execute("CREATE TABLE other (x)")
    assert names(path.parent) == {path.name}
    assert path.read_bytes() == before


def test_a_write_protected_ledger_is_read_as_it_lies(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = write(path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Ledger(path, readonly=True) as ledger:
        assert ledger.entries() == entries
        assert names(path.parent) == {path.name}
    assert names(path.parent) == {path.name}


def test_a_reader_sees_the_log_of_a_killed_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where it may not write: the ledger as it lies would lack the last entry."""

    def die() -> None:
        Ledger(path).append(**request(1))
        os._exit(0)

    assert exit_code(in_child(die)) == 0
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert [entry.number for entry in read(path)] == [1]


def other_application(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE entries (number INTEGER)")


def altered(*statements: str) -> Callable[[Path], None]:
    """A ledger of three entries, then these statements by another program."""

    def alter(path: Path) -> None:
        write(path)
        with raw(path) as connection:
            for statement in statements:
                connection.execute(statement)

    return alter


NO_LEDGERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("not a database\n" * 100), "file is not a database"),
    "empty": (lambda path: path.write_bytes(b""), "is a database of another kind, a ledger is needed"),
    "folder": (lambda path: path.mkdir(), "is not a regular file"),
    "pipe": (lambda path: os.mkfifo(path), "is not a regular file"),
    "dangling link": (lambda path: path.symlink_to(path.parent / "gone"), ""),
    "link": (lambda path: path.symlink_to("/dev/null"), "is not a regular file"),
    "other application": (other_application, "is a database of another kind, a ledger is needed"),
    "other version": (
        altered("PRAGMA user_version = 3"),
        f"is a ledger of format 3, this version writes format {FORMAT}",
    ),
    "another table": (altered("CREATE TABLE more (x)"), "is not a ledger as it was written: its tables are others"),
    # A view could answer what was never written, or never end.
    "a view": (
        altered("ALTER TABLE entries RENAME TO kept", "CREATE VIEW entries AS SELECT * FROM kept"),
        "is not a ledger as it was written: its tables are others",
    ),
    "no triggers": (altered("DROP TRIGGER no_update"), "is not a ledger as it was written: its tables are others"),
    "no table": (altered("DROP TABLE entries"), "is not a ledger as it was written: its tables are others"),
    "another column": (
        altered("ALTER TABLE entries ADD COLUMN more TEXT"),
        "is not a ledger as it was written: its columns are others",
    ),
}


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("kind", NO_LEDGERS)
def test_what_is_no_ledger_is_refused(path: Path, kind: str, readonly: bool) -> None:
    make, said = NO_LEDGERS[kind]
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(InputError) as error:
        Ledger(path, readonly=readonly)
    assert said in message_of(error)
    assert str(path) in message_of(error)
    assert names(path.parent) == {path.name}
    assert (path.read_bytes() if path.is_file() else None) == before


def test_damage_is_told_in_one_sentence(path: Path) -> None:
    write(path, 40)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with Ledger(path) as ledger:
        for work in (ledger.entries, lambda: ledger.head, lambda: ledger.append(**request(41))):
            with pytest.raises(
                InputError, match="cannot be used as a ledger: database disk image is malformed"
            ) as error:
                work()
            message_of(error)


def test_a_table_that_goes_while_a_ledger_is_open_is_told_in_one_sentence(path: Path) -> None:
    write(path)
    with Ledger(path) as ledger:
        with raw(path) as connection:
            connection.execute("DROP TABLE entries")
        with pytest.raises(InputError, match="cannot be used as a ledger: no such table") as error:
            ledger.entries()
        message_of(error)


def test_a_closed_ledger_is_told_in_one_sentence(path: Path) -> None:
    with Ledger(path) as ledger:
        pass
    ledger.close()
    for work in (ledger.entries, lambda: ledger.append(**request(1)), lambda: ledger.import_entries(Chain())):
        with pytest.raises(InputError, match="closed database") as error:
            work()
        message_of(error)
    assert names(path.parent) == {path.name}


def test_the_log_of_a_removed_ledger_is_not_played_into_a_new_one(path: Path, tmp_path: Path) -> None:
    def die() -> None:
        Ledger(path).append(**request(1))
        os._exit(0)

    assert exit_code(in_child(die)) == 0
    path.unlink()
    before = names(tmp_path)
    assert f"{path.name}-wal" in before
    with pytest.raises(InputError, match="is the log of a ledger that is missing") as error:
        Ledger(path)
    message_of(error)
    assert names(tmp_path) == before


def test_an_error_inside_the_block_closes_the_ledger(path: Path) -> None:
    def work() -> None:
        with Ledger(path) as ledger:
            ledger.append(**request(1))
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert names(path.parent) == {path.name}
    assert len(read(path)) == 1


def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    folder = tmp_path / "a?b#c%20d é"
    folder.mkdir()
    write(folder / "ledger?mode=ro.sqlite")
    assert names(folder) == {"ledger?mode=ro.sqlite"}
    assert len(read(folder / "ledger?mode=ro.sqlite")) == 3


def test_entries_of_another_ledger_are_taken_over_as_they_are(tmp_path: Path) -> None:
    entries = write(tmp_path / "old.sqlite")
    with Ledger(tmp_path / "new.sqlite") as new:
        new.import_entries(Chain(entries))
        assert new.entries() == entries
        new.append(**request(4))
        Chain(new.entries())
        with pytest.raises(InputError, match="has entries already"):
            new.import_entries(Chain(entries))
        assert len(new.entries()) == 4
    with Ledger(tmp_path / "bad.sqlite") as bad:
        with pytest.raises(BrokenChain):
            bad.import_entries(Chain(entries[1:]))
        assert bad.entries() == ()
