"""Fuzzing: run directories, ledgers, certificates, annexes and requests with mutations, thousands in the long form.

Whatever is in them, readers raise only the package's own exceptions, in seconds, and change nothing. Every case follows
from its base, in which only salts and noise are drawn anew, and its number: `spoilt(base, place, number)`.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import random
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import graphforget as gf
from graphforget.cli.ledger import ledger
from graphforget.runs.history import read_history
from hostile import FIRST, TooSlow, copied, in_time, make_run, snapshot

ALLOWED = (gf.InputError, gf.Mismatch, gf.Refused)
MOST_EPOCHS = 1000  # a recipe of more is honest work, which the fuzzer need not wait for
REQUEST = gf.Request(nodes=[15])

BASES: dict[str, dict[str, Any]] = {
    "sgc": {"model": "sgc"},
    "dense": {"model": "sgc", "sparse": False, "deletions": 1},
    "sign": {"model": "sign", "deletions": 0},
    "cgu": {"model": "cgu", "deletions": 1, "mu": 0.1},
    "gcn": {"model": "gcn", "deletions": 1, "hidden": 3},
    "sharded": {"model": "sharded-gcn", "deletions": 1, "hidden": 3, "shards": 3},
    "linearised": {"model": "linearised-gcn", "deletions": 1, "hidden": 3},
}


def nested(depth: int) -> Any:
    value: Any = {}
    for level in range(depth):
        value = [value] if level % 2 else {"x": value}
    return value


NASTY: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 10**9, 2**63, 2**64, 10**30, -(10**30), 10**400),
    *(0.5, -0.0, -1.5, 1e100, 1e308, 5e-324, 1e-300, 1e-9, float("nan"), float("inf")),
    *("", "x", "all", "0" * 64, "\x00", "\ud800", "A" * 10_000, "../../etc/passwd", "/dev/zero", "exact", "sgc", "gcn"),
    *([], {}, [[]], [0] * 1000, {"": {}}, nested(100), nested(30), [None], [1e308, 1e308], ["x", "x"]),
]


# -- mutations: each takes what is there and a random generator, and gives something else ----------------------


def mutated_bytes(given: bytes, rng: random.Random) -> bytes:
    content = bytearray(given)
    for _ in range(rng.choice((1, 1, 2, 8))):
        size = len(content)
        start, length = rng.randrange(size + 1), rng.choice((1, 2, 4, 16, 100))
        match rng.randrange(6):
            case 0:
                content[start : start + 1] = bytes([rng.randrange(256)])
            case 1:
                del content[start:]
            case 2:
                del content[start : start + length]
            case 3:
                other = rng.randrange(size + 1)
                content[start : start + length] = content[other : other + length]
            case 4:
                content[start : start + length] = bytes([rng.choice((0, 255))]) * length
            case 5:
                content[start:start] = rng.randbytes(length)
    return bytes(content)


def places_in(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything within."""
    if above:
        yield above
    for name in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places_in(value[name], (*above, name))


def mutated_value(value: Any, rng: random.Random) -> Any:
    """JSON with one value or field changed, dropped, added or moved."""
    value = copy.deepcopy(value)
    ways = list(places_in(value))
    if not ways or rng.random() < 0.02:
        return rng.choice(NASTY)
    *above, last = rng.choice(ways)
    container = value
    for name in above:
        container = container[name]
    match rng.randrange(8):
        case 0:
            del container[last]
        case 1 if isinstance(container, dict):
            container[rng.choice(("", "x", "kind", "columns", "sha256", "__proto__"))] = rng.choice(NASTY)
        case 2:
            source = value
            for name in rng.choice(ways):
                source = source[name]
            container[last] = copy.deepcopy(source)
        case 3 if isinstance(container[last], int | float):
            container[last] *= rng.choice((-1, 0.5, 2, 1 + 1e-9, 1e12, 1e-12))
        case 4 if isinstance(container, list):
            container.append(container[last])
        case 5 if isinstance(container[last], str):
            with suppress(ValueError):
                container[last] = mutated_bytes(container[last].encode(), rng).decode("utf-8", "replace")
        case _:
            container[last] = copy.deepcopy(rng.choice(NASTY))
    return value


def mutated_json(content: bytes, rng: random.Random) -> bytes:
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        value = mutated_value(value, rng)
    text = json.dumps(value, indent=rng.choice((None, 2)))
    if rng.random() < 0.03:
        text = text.replace(": ", ": " + "[" * 200_000, 1)
    return text.encode()


def mutated_tensors(content: bytes, rng: random.Random) -> bytes:
    """The header changed as JSON, or numbers of the tensors."""
    size = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + size], content[8 + size :]
    if rng.random() < 0.5:
        header = mutated_json(header, rng)
    else:
        words = bytearray(data)
        for _ in range(rng.choice((1, 2, 10))):
            start = 8 * rng.randrange(max(1, len(words) // 8))
            number = rng.choice(
                (0, 1, -1, 3, 10**9, 2**62, -(2**63), rng.randrange(-(2**63), 2**63), rng.randrange(30))
            )
            words[start : start + 8] = number.to_bytes(8, "little", signed=True)
        data = bytes(words[: len(data)])
    return len(header).to_bytes(8, "little") + header + data


SQL = (
    "NULL",
    "x'ff00'",
    "-1",
    "0",
    "5",
    "9e999",
    "1e-300",
    "''",
    "'exact'",
    "'refused'",
    "'[]'",
    "'null'",
    "zeroblob(9)",
)


def mutated_ledger(path: Path, rng: random.Random) -> None:
    """Entries and tables changed by SQL, with or without the triggers as they were."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection, suppress(sqlite3.Error):
        made = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        columns = [row[1] for row in connection.execute("PRAGMA table_xinfo(entries)").fetchall()]
        for name, _ in made:
            connection.execute(f"DROP TRIGGER {name}")
        for _ in range(rng.choice((1, 1, 2))):
            column, other = rng.choice(columns), rng.choice(columns)
            statement = rng.choice(
                (
                    f"UPDATE entries SET {column} = {rng.choice(SQL)}",
                    f"UPDATE entries SET {column} = {other} WHERE number = 1",
                    f"UPDATE entries SET {column} = {column} || 'x'",
                    f"UPDATE entries SET answer = replace(answer, '{rng.choice('abc0123')}', '{rng.choice('7x{[')}')",
                    "DELETE FROM entries WHERE number = 1",
                    "DELETE FROM entries",
                    f"ALTER TABLE entries RENAME COLUMN {column} TO renamed",
                    "CREATE VIEW other AS SELECT * FROM entries",
                    "PRAGMA user_version = 1",
                )
            )
            connection.execute(statement)
        for _, sql in made if rng.random() < 0.9 else ():
            connection.execute(sql)


def spoilt(base: Path, place: Path, number: int) -> Path:
    """A copy of the base with the mutation of this number."""
    rng = random.Random(f"{base.name} {number}")
    run = copied(base, place)
    names = sorted(path.name for path in run.iterdir())
    for name in rng.sample(names, rng.choice((1, 1, 1, 2))):
        path = run / name
        by_bytes = rng.random() < 0.3
        if name.endswith(".sqlite") and not by_bytes:
            mutated_ledger(path, rng)
            continue
        way = mutated_bytes if by_bytes else mutated_json if name.endswith(".json") else mutated_tensors
        path.write_bytes(way(path.read_bytes(), rng))
    if rng.random() < 0.8:
        with suppress(ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
            fitted(run)
    return run


def fitted(run: Path) -> None:
    """The checksums as they must be, so that they do not give the mutation away."""
    content = json.loads((run / "run.json").read_text())
    for name in content["sha256"]:
        if "/" not in name:
            content["sha256"][name] = hashlib.sha256((run / name).read_bytes()).hexdigest()
    (run / "run.json").write_text(json.dumps(content))


# -- what is tried on them -------------------------------------------------------------------------------------


def answered(run: Path) -> None:
    trained, _ = gf.load_run(run)
    if trained.recipe.epochs <= MOST_EPOCHS and trained.recipe.polish_steps <= MOST_EPOCHS:
        gf.answer(run, REQUEST)


def verified_without_annex(run: Path) -> None:
    """No digest gives a mutation away: what is left is arithmetic on whatever stands there."""
    trained, graph = gf.load_run(run)
    certificate = gf.Certificate.read(run / "certificate.json")
    gf.verify(certificate, trained, graph)


def annexes_held_against(run: Path) -> None:
    _, graph = gf.load_run(run)
    for annex in read_history(run).annexes:
        annex.still_in(graph)


TRIED: dict[str, Callable[[Path], object]] = {
    "load": gf.load_run,
    "verify": gf.verify_run,
    "verify without annex": verified_without_annex,
    "annexes": annexes_held_against,
    "ledger": lambda run: ledger(run, delta=None, head=False, private=True, as_json=True),
    "released": gf.load_released,
    "answer again": lambda run: gf.answer(run, FIRST, request_id="first"),
    "answer": answered,
}


def failures(tried: str, what: Callable[[], object], folder: Path) -> Iterator[str]:
    """What no input may lead to, in words."""
    before = snapshot(folder)
    try:
        with in_time():
            what()
    except ALLOWED as error:
        if "\n" in str(error):
            yield f"{tried}: not one sentence, {error}"
    except TooSlow:
        yield f"{tried}: too slow, {traceback.format_exc()[-600:]}"
    except Exception:
        yield f"{tried}: {traceback.format_exc()[-600:]}"
    else:
        if tried.startswith("answer"):
            return
    if snapshot(folder) != before:
        yield f"{tried}: changed the folder"


def fuzzed_runs(base: Path, place: Path, numbers: range) -> list[str]:
    found: list[str] = []
    for number in numbers:
        run = spoilt(base, place, number)
        for tried, what in TRIED.items():
            found += [f"{base.name} {number}: {told}" for told in failures(tried, partial(what, run), place.parent)]
        if len(found) > 20:
            break
    return found


def fuzzed_certificates(base: Path, numbers: range) -> list[str]:
    """Certificates alone, against a model that fits them: what a claim computes from its own numbers."""
    trained, graph = gf.load_run(base)
    content, found = json.loads((base / "certificate.json").read_text()), []
    for number in numbers:
        rng = random.Random(f"certificate {number}")
        changed = content | {"claim": mutated_value(content["claim"], rng)} if rng.random() < 0.7 else None
        changed = mutated_value(content, rng) if changed is None else changed

        def check(changed: Any = changed) -> None:
            gf.verify(gf.Certificate.from_dict(changed), trained, graph)

        found += [f"certificate {number}: {told}" for told in failures("certificate", check, base)]
    return found


REQUESTS = {
    "request.json": b'{"nodes": [3, "4"], "edges": [[0, 1], [2, 5]], "attributes": [{"node": 7, "columns": [0, 1]}]}',
    "request.csv": b"kind,node,target,column\nnode,3,,\nedge,0,1,\nattribute,7,,1\nattribute,8,,\n",
}


def fuzzed_requests(base: Path, place: Path, numbers: range) -> list[str]:
    found = []
    for number, (name, content) in itertools.product(numbers, REQUESTS.items()):
        rng = random.Random(f"{name} {number}")
        by_json = name.endswith(".json") and rng.random() < 0.6
        path = place / name
        path.write_bytes((mutated_json if by_json else mutated_bytes)(content, rng))

        def check(path: Path = path) -> None:
            gf.plan(*gf.load_run(base), gf.Request.from_file(path))

        found += [f"{name} {number}: {told}" for told in failures("request", check, place)]
    return found


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("bases")
    made: dict[str, Path] = {}

    def base(name: str) -> Path:
        if name not in made:
            made[name] = make_run(folder / name, **BASES[name])
        return made[name]

    return base


Bases = Callable[[str], Path]


@pytest.mark.slow
@pytest.mark.parametrize("name", BASES)
def test_mutated_runs(name: str, bases: Bases, tmp_path: Path) -> None:
    assert not fuzzed_runs(bases(name), tmp_path / "run", range(25))


def test_mutated_certificates(bases: Bases) -> None:
    assert not fuzzed_certificates(bases("sgc"), range(100))


@pytest.mark.slow
def test_mutated_requests(bases: Bases, tmp_path: Path) -> None:
    assert not fuzzed_requests(bases("sgc"), tmp_path, range(50))


@pytest.mark.long
@pytest.mark.parametrize("part", range(1, 6))
@pytest.mark.parametrize("name", BASES)
def test_many_mutated_runs(name: str, part: int, bases: Bases, tmp_path: Path) -> None:
    assert not fuzzed_runs(bases(name), tmp_path / "run", range(100 * part, 100 * (part + 1)))


@pytest.mark.long
@pytest.mark.parametrize("name", ["sgc", "gcn", "cgu"])
def test_many_mutated_certificates(name: str, bases: Bases) -> None:
    assert not fuzzed_certificates(bases(name), range(100, 600))


@pytest.mark.long
def test_many_mutated_requests(bases: Bases, tmp_path: Path) -> None:
    assert not fuzzed_requests(bases("sgc"), tmp_path, range(50, 550))
