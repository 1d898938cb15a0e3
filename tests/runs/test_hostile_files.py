"""Hostile files: each ends in one sentence and its exit code, in seconds, without a traceback and without a trace."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import graphforget as gf
from cases import Run
from graphforget import json_files as safe_json
from graphforget.certificates.annex import Annex
from graphforget.certificates.ledger import APPLICATION, Ledger
from graphforget.models.registry import MODELS, build, count_parameters
from graphforget.models.sharded import Sharded
from graphforget.report.content import run_content
from graphforget.runs.history import read_history
from graphforget.runs.layout import LIMITS
from graphforget.runs.write import rewrite_checksums
from hostile import copied, in_time, make_run, snapshot

Plant = Callable[[Path], object]
FILES = ("run.json", "graph.json", "weights.safetensors", "graph.safetensors")
RECORDS = ("certificate.json", "outcome.json", "annex.json", "released.safetensors", "ledger.sqlite")
DEEP = "[" * 200_000 + "]" * 200_000


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    return make_run(tmp_path_factory.mktemp("good") / "run")


@pytest.fixture
def place(good: Path, tmp_path: Path) -> Path:
    (tmp_path / "request.json").write_text('{"nodes": [15]}')
    return copied(good, tmp_path / "run")


def replaced(name: str, make: Plant) -> Plant:
    def plant(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        make(run / name)

    return plant


def linked(path: Path) -> None:
    """To a file that is right in itself."""
    path.symlink_to("/dev/zero")


def edited(name: str, change: Callable[[Any], Any], *, fits: bool = True) -> Plant:
    """The JSON changed, and all checksums with it."""

    def plant(run: Path) -> None:
        content = json.loads((run / name).read_text())
        change(content)
        (run / name).write_text(json.dumps(content))
        if fits and name != "run.json":
            rewrite_checksums(run)

    return plant


def recipe(**fields: Any) -> Plant:
    return edited("run.json", lambda run: run["recipe"].update(fields))


def run_json(**fields: Any) -> Plant:
    return edited("run.json", lambda run: run.update(fields))


def certificate(**fields: Any) -> Plant:
    return edited("certificate.json", lambda content: content.update(fields))


def annex(**fields: Any) -> Plant:
    return edited("annex.json", lambda content: content["annexes"][0].update(fields))


def raw_json(name: str, field: str, text: str) -> Plant:
    """A value as text that Python would not write."""

    def plant(run: Path) -> None:
        content = json.loads((run / name).read_text()) | {field: "HERE"}
        (run / name).write_text(json.dumps(content).replace('"HERE"', text))
        if name != "run.json":
            rewrite_checksums(run)

    return plant


def tensor(name: str, part: str, change: Callable[[Any], Any]) -> Plant:
    def plant(run: Path) -> None:
        tensors = load_file(run / name)
        changed = change(tensors.pop(part))
        save_file(tensors | ({} if changed is None else {part: changed.contiguous()}), run / name)
        rewrite_checksums(run)

    return plant


def header(name: str, change: Callable[[dict[str, Any]], object]) -> Plant:
    def plant(run: Path) -> None:
        content = (run / name).read_bytes()
        size = int.from_bytes(content[:8], "little")
        described = json.loads(content[8 : 8 + size])
        change(described)
        text = json.dumps(described).encode()
        (run / name).write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
        rewrite_checksums(run)

    return plant


def declared(name: str, shape: list[int], size: int) -> Plant:
    """A file whose header asks for a lot of memory; with holes it may even have the size."""

    def plant(run: Path) -> None:
        text = json.dumps({"theta": {"dtype": "F64", "shape": shape, "data_offsets": [0, size]}}).encode()
        (run / name).write_bytes(len(text).to_bytes(8, "little") + text)
        os.truncate(run / name, 8 + len(text) + min(size, 2**34))

    return plant


def database(*statements: str, triggers: bool = False) -> Plant:
    def plant(run: Path) -> None:
        with closing(sqlite3.connect(run / "ledger.sqlite", isolation_level=None)) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            for name in () if triggers else ("no_update", "no_delete", "no_replace"):
                connection.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                connection.execute(statement)

    return plant


def rewritten(statement: str) -> Plant:
    """Entries changed, and the triggers as they were."""

    def plant(run: Path) -> None:
        with closing(sqlite3.connect(run / "ledger.sqlite", isolation_level=None)) as connection:
            made = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
            for name, _ in made:
                connection.execute(f"DROP TRIGGER {name}")
            connection.execute(statement)
            for _, sql in made:
                connection.execute(sql)

    return plant


RECURSIVE = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
COLUMNS = (
    "i AS number, 'x' AS time, i AS request_id, 'x' AS request_digest, 'x' AS certificate_digest, 'exact' AS level"
)
VIEW = f"CREATE VIEW entries AS {RECURSIVE} {COLUMNS}, 0.0 AS ratio, '' AS answer, '' AS previous, '' AS hash FROM n"


def forged_database(*statements: str) -> Plant:
    def plant(run: Path) -> None:
        (run / "ledger.sqlite").unlink()
        with closing(sqlite3.connect(run / "ledger.sqlite", isolation_level=None)) as connection:
            for statement in (f"PRAGMA application_id = {APPLICATION}", "PRAGMA user_version = 2", *statements):
                connection.execute(statement)

    return plant


def planted_log(run: Path) -> None:
    """A write-ahead log of the ledger itself, with an entry more."""
    other = run.parent / "other.sqlite"
    shutil.copy(run / "ledger.sqlite", other)
    connection = sqlite3.connect(other, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("DROP TRIGGER no_replace")
    shutil.copy(other.with_name("other.sqlite-wal"), run / "ledger.sqlite-wal")
    connection.close()
    other.unlink()


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**36)


def linked_to_itself(run: Path) -> None:
    (run / "graph.json").rename(run.parent / "graph.json")
    (run / "graph.json").symlink_to(run.parent / "graph.json")


def checksum_of_a_pipe(run: Path) -> None:
    os.mkfifo(run / "pipe")
    edited("run.json", lambda content: content["sha256"].update({"pipe": "0"}))(run)


def always(value: object) -> Callable[[object], object]:
    return lambda _: value


NUMBERS = {"null": None, "text": "1", "a list": [1], "true": True, "negative": -1, "huge": 10**30, "1e300": 1e300}
HISTORY = {"method": "x", "m": 5, "removed": 1, "affected": 1, "step_norm": 0.1, "gradient_norm": 0.1}

PLANTS: dict[str, Plant] = {
    **{f"{name} is a pipe": replaced(name, os.mkfifo) for name in (*FILES, *RECORDS)},
    **{f"{name} is a link to a device": replaced(name, linked) for name in (*FILES, *RECORDS)},
    **{f"{name} is a folder": replaced(name, os.mkdir) for name in (*FILES, *RECORDS)},
    **{f"{name} is huge": replaced(name, huge) for name in (*FILES, *RECORDS)},
    **{f"{name} is deep": replaced(name, lambda p: p.write_text(DEEP)) for name in (*FILES, *RECORDS)},
    **{f"{name} is null": replaced(name, lambda p: p.write_text("null")) for name in (*FILES, *RECORDS)},
    **{f"{name} is a list": replaced(name, lambda p: p.write_text("[]")) for name in (*FILES, *RECORDS)},
    **{f"{name} holds half a character": raw_json(name, "x", r'"\ud800"') for name in ("run.json", "certificate.json")},
    "a linked file of the run's own": linked_to_itself,
    "a checksum of a file elsewhere": edited("run.json", lambda run: run["sha256"].update({"../../etc/passwd": "0"})),
    "a checksum of a device": edited("run.json", lambda run: run["sha256"].update({"/dev/zero": "0"})),
    "a checksum of a pipe": checksum_of_a_pipe,
    "checksums are a list": run_json(sha256=["run.json"]),
    "a checksum is null": edited("run.json", lambda run: run["sha256"].update({"graph.json": None})),
    **{f"{option} is {name}": recipe(options={option: value})
       for option in ("hops",) for name, value in (NUMBERS | {"10**9": 10**9}).items()},
    **{f"{option} of a gcn is {name}": recipe(model="gcn", options={option: value})
       for option in ("hidden", "dropout", "scale_rows") for name, value in (NUMBERS | {"10**9": 10**9}).items()},
    "sign of 10**9 hops": recipe(model="sign", options={"hops": 10**9}),
    "10**9 shards": recipe(model="sharded-gcn", options={"shards": 10**9, "hidden": 4}),
    "10**9 heads": recipe(model="gat", options={"heads": 10**9, "hidden": 10**9}),
    "a wide linearised gin": recipe(model="linearised-gin", options={"hidden": 10**6}),
    "an option columns": recipe(options={"columns": 10**9}),
    "options nested": recipe(options={"hops": nested(30)}),
    "options are a list": recipe(options=[1]),
    **{f"{field} is {name}": recipe(**{field: value})
       for field in ("mu", "sigma", "epsilon", "delta", "releases", "seed", "tolerance", "epochs", "learning_rate")
       for name, value in NUMBERS.items() if not (field == "seed" and name == "1e300")},
    "an environment of text": recipe(environment="x"),
    "a floor of 2": recipe(floor=2.0),
    "an unknown field in the recipe": recipe(colour="red"),
    "a reach of 10**9 hops": edited("run.json", lambda run: run["reach"].update(hops=10**9)),
    "a reach of null": run_json(reach=None),
    "a history of nonsense": run_json(history=[{"method": "x"}]),
    "a history of numbers": run_json(history=[1, 2]),
    "a history with a huge step": run_json(history=[HISTORY | {"step_norm": 1e308}] * 3),
    "a history with NaN": raw_json("run.json", "history", "[NaN]"),
    "an infinite objective": raw_json("run.json", "objective", "1e999"),
    "a number of 5,000 digits": raw_json("run.json", "objective", "1" * 5000),
    "an objective of null": run_json(objective=None),
    "releases of text": run_json(releases=["1"]),
    "releases that overflow": run_json(releases=[1e200, 1e200]),
    "a salt that is no salt": run_json(graph_salt="xyz"),
    "a field of run.json missing": edited("run.json", lambda run: run.pop("noise")),
    "an unknown field in run.json": run_json(colour="red"),
    "a claim of null": certificate(claim=None),
    "a claim of a list": certificate(claim=[]),
    "an unknown kind of claim": certificate(claim={"kind": "certain/1"}),
    "an objective of null in the certificate": certificate(objective=None),
    "a model of null in the certificate": certificate(model=None),
    "settings of a list": certificate(settings=[]),
    "a claim that is deep": raw_json("certificate.json", "claim", DEEP),
    "digests of null": certificate(digests=None),
    "a huge number of columns": edited("graph.json", lambda graph: graph.update(num_columns=10**12)),
    "a billion classes": edited("graph.json", lambda graph: graph.update(num_classes=10**9)),
    "names that are no text": edited("graph.json", lambda graph: graph.update(subject_ids=[1] * 23)),
    "a name twice": edited("graph.json", lambda graph: graph.update(subject_ids=["ann"] * 23)),
    "theta asks for 64 GiB": declared("weights.safetensors", [2**33], 2**36),
    "theta of 16 GiB of holes": declared("weights.safetensors", [2**31], 2**34),
    "released asks for 64 GiB": declared("released.safetensors", [2**33], 2**36),
    "a header of 2**60 bytes": lambda run: (run / "weights.safetensors").write_bytes((2**60).to_bytes(8, "little")),
    "another type in the header": header("weights.safetensors", lambda h: h["theta"].update(dtype="I64")),
    "no such type in the header": header("weights.safetensors", lambda h: h["theta"].update(dtype="X99")),
    "a negative offset": header("weights.safetensors", lambda h: h["theta"].update(data_offsets=[-8, 0])),
    "another shape in the header": header("weights.safetensors", lambda h: h["theta"].update(shape=[2, 10**18])),
    "theta of NaN": tensor("weights.safetensors", "theta", lambda theta: theta * float("nan")),
    "theta with two axes": tensor("weights.safetensors", "theta", lambda theta: theta.unsqueeze(0)),
    "an edge to nowhere": tensor("graph.safetensors", "edge_index", lambda edges: edges + 10**9),
    "edges of fractions": tensor("graph.safetensors", "edge_index", lambda edges: edges.double()),
    "labels out of range": tensor("graph.safetensors", "y", lambda y: y + 10**12),
    "a mask of numbers": tensor("graph.safetensors", "train_mask", lambda mask: mask.long()),
    "a short mask": tensor("graph.safetensors", "train_mask", lambda mask: mask[:-1]),
    "numbers descending": tensor("graph.safetensors", "numbers", lambda numbers: numbers.flip(0)),
    "rows that go back": tensor("graph.safetensors", "x.crow", lambda crow: crow.flip(0)),
    "rows past the end": tensor("graph.safetensors", "x.crow", lambda crow: crow * 10**12),
    "columns out of range": tensor("graph.safetensors", "x.columns", lambda columns: columns - 10**9),
    "values that are missing": tensor("graph.safetensors", "x.values", lambda values: values[:3]),
    "infinite attributes": tensor("graph.safetensors", "x.values", lambda values: values / 0),
    "an annex of null": edited("annex.json", lambda content: content.update(annexes=None)),
    "an annex of numbers": edited("annex.json", lambda content: content.update(annexes=[1, 2])),
    "a salt of another length": annex(salt="00"),
    "nodes that are no hashes": annex(nodes=["ann"]),
    "columns far out of range": edited(
        "annex.json",
        lambda content: content["annexes"][0].update(attributes=dict.fromkeys(
            content["annexes"][0]["attributes"], "00" * 1000 + "01")),
    ),
    "columns without end": annex(attributes={"0" * 64: "f" * 2**24}),
    "columns of null": annex(attributes={"0" * 64: None}),
    "an account of lists": annex(account=[]),
    "an account with other fields": annex(account={"measured": []}),
    "a view that never ends": forged_database(VIEW),
    "another table": database("CREATE TABLE other (x)"),
    "a column more": database("ALTER TABLE entries ADD COLUMN more TEXT"),
    "a computed column": database("ALTER TABLE entries ADD COLUMN more TEXT AS (zeroblob(1e9))"),
    "an index on an expression": database("CREATE INDEX i ON entries (abs(number))", triggers=True),
    "a virtual table": database("CREATE VIRTUAL TABLE words USING fts5(x)", triggers=True),
    "another trigger": database(
        f"CREATE TRIGGER no_update AFTER INSERT ON entries BEGIN SELECT max(i) FROM ({RECURSIVE} i FROM n); END"
    ),
    "no triggers": database(),
    "a schema of nonsense": database("UPDATE sqlite_schema SET sql = 'nonsense' WHERE name = 'entries'"),
    "a blob for a hash": rewritten("UPDATE entries SET hash = zeroblob(32)"),
    "a number of text": rewritten("UPDATE entries SET time = x'ff'"),
    "an answer of a list": rewritten("UPDATE entries SET answer = '[]'"),
    "an answer that is deep": rewritten(f"UPDATE entries SET answer = '{DEEP}'"),
    "an infinite ratio": rewritten("UPDATE entries SET ratio = 9e999"),
    "numbers past the end": rewritten("UPDATE entries SET number = number + 10"),
    "a level of null": rewritten("UPDATE entries SET level = 'null'"),
    "a signer of a number": rewritten("UPDATE entries SET signer = 5"),
    "a long value": rewritten("UPDATE entries SET answer = printf('%.*c', 70000000, 'x') WHERE number = 1"),
    "a database of another kind": forged_database("PRAGMA application_id = 5"),
    "a ledger in pieces": lambda run: os.truncate(run / "ledger.sqlite", 5000),
    "a log beside the ledger": planted_log,
    "a log that is a pipe": lambda run: os.mkfifo(run / "ledger.sqlite-wal"),
    "an earlier ledger that is a pipe": lambda run: os.mkfifo(run / "ledger-1.sqlite"),
}  # fmt: skip


def ends_in_one_sentence(run: Run, place: Path, *arguments: str | Path, may_pass: bool = False) -> None:
    before = snapshot(place.parent)
    with in_time():
        code, out, err = run(*arguments)
    assert snapshot(place.parent) == before, arguments
    if may_pass and code == 0:
        return
    assert code in (1, 2), (arguments, code, err)
    assert not out, arguments
    assert err.startswith("graphforget: "), (arguments, err)
    assert err.count("\n") == 1, (arguments, err)
    assert len(err) < 3000, arguments


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
def test_a_hostile_file_ends_in_one_sentence(plant: str, place: Path, run: Run) -> None:
    PLANTS[plant](place)
    request = place.parent / "request.json"
    ends_in_one_sentence(run, place, "verify", place)
    ends_in_one_sentence(run, place, "unlearn", place, request, "--in-place")
    ends_in_one_sentence(run, place, "plan", place, request, may_pass=True)  # it looks at the model and graph alone
    ends_in_one_sentence(run, place, "ledger", place, "--private", may_pass=True)  # at no certificate.json


SPOILT = [f"{name} is a {kind}" for name in (*FILES, *RECORDS) for kind in ("pipe", "link to a device")]


@pytest.mark.slow
@pytest.mark.parametrize("plant", SPOILT)
def test_further_commands_read_as_safely(plant: str, good: Path, place: Path, run: Run) -> None:
    PLANTS[plant](place)
    request, page, other = (
        place.parent / "request.json",
        place.parent / "page.html",
        copied(good, place.parent / "other"),
    )
    ends_in_one_sentence(run, place, "report", place, "--out", page)
    ends_in_one_sentence(run, place, "verify", other, "--before", place)
    if "certificate" in plant or not plant.startswith(RECORDS):
        ends_in_one_sentence(run, place, "audit", place)
    if plant.startswith(FILES):
        ends_in_one_sentence(run, place, "audit", other, "--before", place, "--request", request)


def test_what_is_not_spoilt_passes(place: Path, run: Run) -> None:
    """Or the test above would pass whatever was planted."""
    before, request = snapshot(place.parent), place.parent / "request.json"
    for arguments in (("verify", place), ("ledger", place, "--private"), ("plan", place, request)):
        assert run(*arguments).code == 0, arguments
        assert snapshot(place.parent) == before
    assert run("unlearn", place, request, "--in-place").code == 0
    assert run("verify", place).code == 0


def test_a_reader_of_a_ledger_leaves_no_trace(place: Path) -> None:
    before = snapshot(place)
    with Ledger(place / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.entries()
        assert snapshot(place) == before
    assert snapshot(place) == before


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_counted_without_any(name: str) -> None:
    options: dict[str, Any] = {"shards": 3} if name.startswith("sharded") else {}
    fixed = ("sgc", "sign", "relational-sign", "cgu", "scalegun", "sharded-sgc", "link-sgc", "link-sign", "graph-sign")
    options |= {"hops": 3} if name in fixed else {"rounds": 2} if name == "graph-wl" else {"hidden": 4}
    module = build(name, columns=5, classes=3, **options)
    counted = count_parameters(name, columns=5, classes=3, options=options)
    assert counted == sum(p.numel() for p in module.parameters())


def test_shards_in_a_file_are_those_of_the_training_nodes(tmp_path: Path, one_thread: None) -> None:
    run = make_run(tmp_path / "run", "sharded-gcn", deletions=0, shards=3, hidden=3)
    trained, graph = gf.load_run(run)
    assert isinstance(trained.module, Sharded)
    for bad in (graph.y * 0 + 7, graph.y * 0 - 2, trained.module.shard_of[1:], trained.module.shard_of.double()):
        tensor("weights.safetensors", "state.shard_of", always(bad))(run)
        with pytest.raises(gf.InputError, match="the shards are not"):
            gf.load_run(run)


# -- files that a user names ---------------------------------------------------------------------------------


USER_FILES: dict[str, Plant] = {
    "pipe": os.mkfifo,
    "device": linked,
    "folder": os.mkdir,
    "huge": huge,
    "deep": lambda path: path.write_text(DEEP),
    "zeros": lambda path: path.write_bytes(bytes(5000)),
}
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "request": ("request.json", gf.Request.from_file),
    "csv request": ("request.csv", gf.Request.from_file),
    "private key": ("key", gf.private_key),
    "public key": ("key.pub", gf.public_key),
    "certificate": ("certificate.json", gf.Certificate.read),
    "nodes": ("nodes.csv", lambda path: gf.load(path.parent)),
    "pyg": ("graph.pt", gf.load),
    "ledger": ("ledger.sqlite", lambda path: Ledger(path, readonly=True)),
    "run": ("run", gf.load_run),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", USER_FILES)
def test_files_that_a_user_names(kind: str, reader: str, tmp_path: Path) -> None:
    name, read = READERS[reader]
    USER_FILES[kind](tmp_path / name)
    with in_time(), pytest.raises(gf.InputError) as caught:
        read(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_key_may_be_a_link(tmp_path: Path) -> None:
    private, public = gf.make_keys(tmp_path / "key")
    for path in (private, public):
        path.with_name(f"{path.name}.link").symlink_to(path)
    assert gf.private_key(f"{private}.link").public_key() == gf.public_key(f"{public}.link")


def test_a_tensor_that_stands_for_many_is_refused(tmp_path: Path) -> None:
    from torch_geometric.data import Data

    data = Data(x=torch.ones(1, 1).expand(10**7, 10**6), edge_index=torch.zeros(2, 0).long(), y=torch.arange(4) % 2)
    torch.save(data, tmp_path / "graph.pt")
    with in_time(), pytest.raises(gf.InputError, match="'x' is not a tensor of its size"):
        gf.load(tmp_path / "graph.pt")


# -- limits ---------------------------------------------------------------------------------------------------


def test_json_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert safe_json.parse_json('{"a": [1, 2.5, "\\ud83d\\ude00"]}') == {"a": [1, 2.5, "\N{GRINNING FACE}"]}
    monkeypatch.setattr(safe_json, "MOST", 5)
    for text in (
        "[1, 2, 3, 4, 5, 6]",
        "NaN",
        "1e999",
        "9" * 60,
        '{"a": 1, "a": 2}',
        '"\\ud800"',
        DEEP,
        "nested",
        b"\xff",
    ):
        with pytest.raises(safe_json.JsonError):
            safe_json.parse_json(text)


def test_a_large_annex_is_not_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "annex.json", 100)
    with pytest.raises(gf.InputError, match="up to 100 are possible"):
        read_history(place)


def test_an_annex_of_a_large_graph_is_read(tmp_path: Path) -> None:
    """Limits are far over what is real: 30,000 nodes that lose half of 8,000 columns."""
    columns = tuple(range(0, 8000, 2))
    many = {f"{node:064x}": columns for node in range(300)}
    written = Annex(bytes(32), "0" * 64, frozenset(), frozenset(), many)
    text = json.dumps({"annexes": [written.to_dict()]})
    assert len(text) * 100 < LIMITS["annex.json"]
    assert Annex.from_dict(safe_json.parse_json(text)["annexes"][0]) == written


def test_what_could_not_be_read_is_not_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(place.parent)
    monkeypatch.setitem(LIMITS, "annex.json", (place / "annex.json").stat().st_size + 10)
    with pytest.raises(gf.InputError, match=r"annex\.json would have more than the"):
        gf.answer(place, gf.Request(nodes=[15]))
    assert snapshot(place.parent) == before


def test_more_values_than_can_be_read_are_not_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request names few bytes and many values: 5 million hashes are 370 MB, which is under the limit of the file."""
    values = sum(map((place / "annex.json").read_text().count, ",[{"))
    gf.verify_run(place)
    before = snapshot(place.parent)
    monkeypatch.setattr(safe_json, "MOST", values + 200)
    node = gf.load_run(place)[1].name_of(0)
    with pytest.raises(gf.InputError, match=r"\.json would have more than the \d+ values that can be read"):
        gf.answer(place, [gf.Request(attributes={node: [0]}) for _ in range(80)])
    assert snapshot(place.parent) == before
    gf.verify_run(place)


def test_an_answer_is_repeated_only_from_a_ledger_that_holds(good: Path, tmp_path: Path) -> None:
    run = copied(good, tmp_path / "run")
    gf.answer(run, gf.Request(nodes=[15]), request_id="one")
    assert gf.answer(run, gf.Request(nodes=[15]), request_id="one").repeated
    for answer in ("[]", "{}", '{"level": "certified"}'):
        rewritten(f"UPDATE entries SET answer = '{answer}' WHERE request_id = 'one'")(run)
        with pytest.raises(gf.Mismatch):
            gf.answer(run, gf.Request(nodes=[15]), request_id="one")


@pytest.mark.parametrize("account", [{}, {"footprint": {}}, {"measured": {"distance": "near"}}, {"seconds": None}])
def test_an_account_that_lacks_something_is_not_told(
    account: dict[str, Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = read_history(place)
    whole = dict(record.annexes[-1].account)
    forged = dataclasses.replace(record.annexes[-1], account=whole | account if account else {"audience": "private"})
    changed = dataclasses.replace(record, annexes=(*record.annexes[:-1], forged))
    monkeypatch.setattr("graphforget.report.content.read_history", lambda run: changed)
    with pytest.raises(gf.Mismatch, match="cannot be shown"):
        run_content(place, private=True)
