"""Requests against run directories: written down once, in order, whole or not at all, nothing left lying about."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import graphforget as gf
from cases import CLASSES, idea, random_graph
from graphforget.certificates.chain import START, Chain
from graphforget.certificates.ledger import Ledger
from graphforget.certificates.signing import entry_signer
from graphforget.privacy.gaussian import composed_ratio, epsilon_of
from graphforget.runs import answering, locks, verify, write
from graphforget.runs.history import read_history
from graphforget.runs.layout import ANNEX, CERTIFICATE, LEDGER, OUTCOME, PROOFS, RELEASED, SUPPRESSED
from graphforget.runs.locks import parent_lock
from graphforget.runs.released import released_weights
from graphforget.runs.write import rewrite_checksums
from graphforget.verification.verify import CANNOT_BE_CHECKED

FILES = {
    *("run.json", "graph.json", "weights.safetensors", "graph.safetensors"),
    *(CERTIFICATE, OUTCOME, ANNEX, RELEASED, LEDGER, PROOFS, SUPPRESSED),
}
KEY = Ed25519PrivateKey.generate()
ROLLBACK = "that this is not an older copy of the run: keep 'ledger --head' elsewhere and give it as --head"
pytestmark = pytest.mark.usefixtures("one_thread")


def subject(number: int) -> str:
    return f"subject-{number:04d}-name"


@functools.cache
def start() -> tuple[gf.Trained, gf.Graph]:
    plain = random_graph(3, nodes=40, edges=60, unlabelled=0)
    graph = gf.Graph.create(
        x=plain.x,
        edges=plain.edge_index,
        y=plain.y,
        train_mask=plain.train_mask,
        test_mask=plain.test_mask,
        num_classes=CLASSES,
        subject_ids=[subject(row) for row in range(40)],
    )
    return gf.train(graph, "sgc", sigma=0.03), graph


def gone(*numbers: int) -> gf.Request:
    return gf.Request(nodes=[subject(number) for number in numbers])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return gf.save_run(tmp_path / "place" / "run", *start())


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, hidden or not."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def hold_lock(folder: Path, word: str) -> list[str]:
    """The files anywhere in `folder` in which `word` stands."""
    return [name for name, content in tree(folder).items() if content is not None and word.encode() in content]


def assert_sound(run: Path, *, entries: int, without: tuple[int, ...]) -> None:
    """What a run must be after so many requests."""
    trained, graph = gf.load_run(run)
    assert trained.graph_digest == graph.digest
    record = read_history(run)
    Chain(record.entries)
    assert len(record.entries) == len(record.annexes) == entries
    assert graph.subject_ids is not None
    assert not {subject(number) for number in without} & set(graph.subject_ids)
    if entries:
        assert "ledger" in {result.name for result in gf.verify_run(run).checks}


# -- in place and elsewhere ------------------------------------------------------------------------------------------


def test_in_place_the_run_moves_on_and_the_old_state_is_gone(run: Path) -> None:
    assert hold_lock(run.parent, subject(4)) == ["run/graph.json"]
    answered = gf.answer(run, gone(4))
    assert os.listdir(run.parent) == ["run"]
    assert set(os.listdir(run)) == FILES
    assert hold_lock(run.parent, subject(4)) == []
    assert hold_lock(run.parent, subject(5)) == ["run/graph.json"]
    assert answered.folder == run
    assert not answered.repeated
    assert answered.outcome is not None
    assert_sound(run, entries=1, without=(4,))
    trained, graph = gf.load_run(run)
    assert torch.equal(trained.theta, answered.outcome.trained.theta)
    assert graph.digest == start()[1].without(gone(4)).digest == answered.outcome.graph.digest
    assert not torch.equal(trained.theta, start()[0].theta)


@pytest.mark.slow
def test_elsewhere_the_run_stays_as_it_is(run: Path, tmp_path: Path) -> None:
    before = tree(run)
    answered = gf.answer(run, gone(4), out=tmp_path / "new" / "run")
    assert tree(run) == before
    assert answered.folder == tmp_path / "new" / "run"
    assert_sound(tmp_path / "new" / "run", entries=1, without=(4,))
    assert hold_lock(tmp_path / "new", subject(4)) == []
    with pytest.raises(gf.InputError, match="exists already"):
        gf.answer(run, gone(5), out=tmp_path / "new" / "run")
    gf.answer(run, gone(5), out=tmp_path / "new" / "run", force=True)
    assert_sound(tmp_path / "new" / "run", entries=1, without=(5,))
    assert tree(run) == before


@pytest.mark.parametrize("force", [False, True])
def test_the_run_itself_is_no_place_for_its_next_state(run: Path, tmp_path: Path, force: bool) -> None:
    before = tree(run)
    link = tmp_path / "link"
    link.symlink_to(run, target_is_directory=True)
    for one, out in ((run, run), (run, link), (link, run), (run, run.parent / "x" / ".." / run.name)):
        with pytest.raises(gf.InputError, match="is the run itself.*use --in-place"):
            gf.answer(one, gone(4), out=out, force=force)
    assert tree(run) == before


def test_what_names_people_is_readable_by_the_owner_alone(run: Path) -> None:
    gf.answer(run, gone(4))
    for name in ("graph.json", "graph.safetensors", "weights.safetensors", ANNEX, LEDGER):
        assert (run / name).stat().st_mode & 0o077 == 0, name


def test_a_request_that_fails_changes_nothing(run: Path, tmp_path: Path) -> None:
    gf.answer(run, gone(4), request_id="one")
    before = tree(tmp_path)
    for request, options in (
        (gone(4), {}),
        (gf.Request(nodes=["nobody"]), {}),
        (gone(5), {"method": "magic"}),
        (gone(5), {"epsilon": -1}),
        (gone(5), {"request_id": "two\nlines"}),
        (gone(5), {"request_id": "x" * 201}),
    ):
        with pytest.raises(gf.InputError):
            gf.answer(run, request, **options)
        assert tree(tmp_path) == before
    with pytest.raises(gf.Refused):
        gf.answer(run, gone(5), level="exact", otherwise="refuse")
    assert tree(tmp_path) == before


def test_the_summary_is_what_was_written(run: Path) -> None:
    answered = gf.answer(run, gone(4), request_id="one", key=KEY)
    public = {name: value for name, value in answered.summary.items() if name != "private"}
    assert json.loads((run / OUTCOME).read_text()) == public
    assert json.loads((run / CERTIFICATE).read_text()) == public["certificate"]
    (entry,) = read_history(run).entries
    assert json.loads(entry.answer) == public
    (annex,) = json.loads((run / ANNEX).read_text())["annexes"]
    assert annex["account"] == json.loads(json.dumps(answered.summary["private"]))
    assert entry.request_id == answered.request_id == "one"
    certificate = gf.Certificate.read(run / CERTIFICATE)
    assert entry.certificate_digest == certificate.digest
    assert (entry.level, entry.request_digest) == (certificate.level, certificate.digests["request"])
    assert set(answered.summary["test_micro_f1"]) == {"released"}
    assert gf.verify_run(run, key=KEY.public_key()).unchecked == ("fresh noise", *CANNOT_BE_CHECKED, ROLLBACK)
    assert gf.verify_run(run, key=KEY.public_key(), head=entry.hash).unchecked == ("fresh noise", *CANNOT_BE_CHECKED)


@pytest.mark.slow
def test_released_weights_are_those_with_the_noise(run: Path) -> None:
    with pytest.raises(gf.InputError, match="holds no released weights: it has not answered any request$"):
        gf.load_released(run)
    answered = gf.answer(run, gone(4))
    assert answered.outcome is not None
    released, graph = gf.load_released(run)
    assert torch.equal(released.theta, answered.outcome.released_theta)
    assert not torch.equal(released.theta, gf.load_run(run)[0].theta)
    assert released.noise == answered.outcome.certificate.sigma == 0.03
    assert graph.digest == answered.outcome.graph.digest
    assert torch.equal(released.logits(graph), answered.outcome.released.logits(graph))
    with pytest.raises(gf.InputError, match="these are released weights with noise"):
        gf.unlearn(released, graph, gone(5))


# -- request ids -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in place", "elsewhere"])
def test_the_same_id_twice_gives_the_first_answer(elsewhere: bool, run: Path, tmp_path: Path) -> None:
    where: dict[str, Any] = {"out": tmp_path / "new"} if elsewhere else {}
    first = gf.answer(run, gone(4, 5), request_id="one", **where)
    before = tree(tmp_path)
    again = gf.answer(run, gone(5, 4), request_id="one", **where)
    assert again.repeated
    assert again.outcome is None
    assert again.summary == first.summary
    assert (again.request_id, again.folder) == (first.request_id, first.folder)
    assert tree(tmp_path) == before


def test_the_first_answer_is_given_also_after_other_requests(run: Path) -> None:
    first = gf.answer(run, gone(4), request_id="one")
    gf.answer(run, gone(5), request_id="two")
    before = tree(run)
    again = gf.answer(run, gone(4), request_id="one")
    assert again.repeated
    assert again.summary == first.summary
    assert tree(run) == before


def test_the_same_id_for_another_request_is_refused(run: Path, tmp_path: Path) -> None:
    gf.answer(run, gone(4), request_id="one")
    before = tree(tmp_path)
    for other in (gone(5), gone(4, 5), gf.Request(attributes={subject(4): "all"})):
        with pytest.raises(gf.InputError, match="^the request id 'one' was used for another request$"):
            gf.answer(run, other, request_id="one")
        assert tree(tmp_path) == before


def test_without_an_id_every_request_gets_one(run: Path) -> None:
    ids = {gf.answer(run, gone(number)).request_id for number in (4, 5)}
    assert len(ids) == 2
    assert {entry.request_id for entry in read_history(run).entries} == ids


# -- one after the other ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_three_requests_make_a_chain(run: Path, tmp_path: Path) -> None:
    follows, ratios = START, []
    for place, number in enumerate((4, 5, 6), start=1):
        before = Path(shutil.copytree(run, tmp_path / f"before {place}"))
        answered = gf.answer(run, gone(number), request_id=f"request {place}", key=KEY)
        certificate = gf.Certificate.read(run / CERTIFICATE)
        assert certificate.follows == follows
        record = read_history(run)
        checked = gf.verify_run(run, key=KEY.public_key(), head=record.head, before=before if place > 1 else None)
        assert checked.unchecked == (*(() if place > 1 else ("fresh noise",)), *CANNOT_BE_CHECKED)
        assert [entry.number for entry in record.entries] == list(range(1, place + 1))
        assert record.head == record.entries[-1].hash
        assert record.entries[-1].previous == follows
        assert answered.outcome is not None
        assert record.annexes[-1].request == answered.outcome.annex.request
        assert certificate.tolerance is not None
        assert certificate.sigma == 0.03
        assert certificate.releases_left == 64 - place
        ratios.append(certificate.tolerance / certificate.sigma)
        follows = record.head
    assert [entry.ratio for entry in record.entries] == ratios
    assert_sound(run, entries=3, without=(4, 5, 6))
    together = gf.releases_so_far(run, delta=1e-5)
    assert together.releases == 3
    assert together.epsilon == epsilon_of(ratio=composed_ratio(ratios), delta=1e-5)
    assert composed_ratio(ratios) == pytest.approx(math.sqrt(sum(r * r for r in ratios)), rel=1e-12)
    assert together.epsilon > max(epsilon_of(ratio=r, delta=1e-5) for r in ratios)
    assert together.epsilon < 1
    assert together.reason is None


@pytest.mark.slow
def test_an_unproven_release_leaves_no_sum(run: Path) -> None:
    gf.answer(run, gone(4))
    gf.answer(run, gone(5), method="idea", level="empirical")
    assert gf.verify_run(run).checks
    together = gf.releases_so_far(run, delta=1e-5)
    assert together.epsilon is None
    assert together.reason == "entry 2 is empirical, so nothing is proven about its release"
    assert gf.releases_so_far(gf.save_run(run.with_name("other"), *start()), delta=1e-5).releases == 0


@pytest.mark.slow
def test_what_an_earlier_request_deleted_stays_deleted(run: Path, tmp_path: Path) -> None:
    """Request 3 is done right, on a graph into which request 1's node was put back."""
    for number in (4, 5):
        gf.answer(run, gone(number))
    record = read_history(run)
    graph = start()[1].without(gone(5))
    trained = gf.unlearn(*start(), gone(5)).trained
    done = gf.unlearn(trained, graph, gone(6))
    assert gf.verify(done.certificate, done.trained, done.graph, annexes=[done.annex]).checks
    gf.save_outcome(tmp_path / "forged", done, after=run)
    assert len(read_history(tmp_path / "forged").annexes) == 3
    assert read_history(tmp_path / "forged").annexes[:2] == record.annexes
    with pytest.raises(gf.Mismatch, match="^a node that was to be forgotten is in the retained graph$"):
        gf.verify_run(tmp_path / "forged")


@pytest.mark.slow
def test_an_outcome_is_saved_after_the_run_it_came_from(run: Path, tmp_path: Path) -> None:
    gf.answer(run, gone(4), request_id="one")
    trained, graph = gf.load_run(run)
    result = gf.unlearn(trained, graph, gone(5))
    assert gf.save_outcome(tmp_path / "next", result, after=run, request_id="two", key=KEY) == tmp_path / "next"
    assert_sound(tmp_path / "next", entries=2, without=(4, 5))
    head = read_history(tmp_path / "next").head
    checked = gf.verify_run(tmp_path / "next", key=KEY.public_key(), head=head, before=run)
    assert checked.unchecked == CANNOT_BE_CHECKED
    assert [entry.request_id for entry in read_history(tmp_path / "next").entries] == ["one", "two"]
    assert read_history(tmp_path / "next").entries[0] == read_history(run).entries[0]
    assert gf.Certificate.read(tmp_path / "next" / CERTIFICATE).follows == read_history(run).head
    alone = gf.save_outcome(tmp_path / "alone", result)
    assert_sound(alone, entries=1, without=(4, 5))
    before = tree(tmp_path)
    with pytest.raises(gf.InputError, match="exists already"):
        gf.save_outcome(alone, result)
    with pytest.raises(gf.InputError, match="request 'one' is in the ledger already"):
        gf.save_outcome(tmp_path / "twice", result, after=run, request_id="one")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("content", ["", "{}", "5", "null", "[5]", "[]", '[{"salt": "00"}]'])
def test_annexes_that_cannot_be_read_are_told_in_one_sentence(content: str, run: Path) -> None:
    gf.answer(run, gone(4))
    (run / ANNEX).write_text(content)
    with pytest.raises(gf.InputError) as caught:
        read_history(run)
    assert "\n" not in str(caught.value)
    rewrite_checksums(run)
    with pytest.raises(gf.Mismatch):
        gf.verify_run(run)


def test_the_distance_is_rounded_wherever_it_is_told(run: Path) -> None:
    """With all of its digits it could be used to test guesses about the deleted; in public it stands nowhere."""
    answered = gf.answer(run, gone(4))
    assert answered.outcome is not None
    exact = answered.outcome.trained.residual
    private = answered.summary.pop("private")
    assert private["measured"]["distance"] == float(f"{private['measured']['distance']:.2g}") != exact
    assert exact not in private["details"]["distances"]
    assert "distance" not in json.dumps(answered.summary)


# -- killed ----------------------------------------------------------------------------------------------------------

WAYS: tuple[tuple[Any, str], ...] = (
    (Path, "rename"),
    (Path, "write_bytes"),
    (Path, "write_text"),
    (Path, "chmod"),
    (shutil, "rmtree"),
    (tempfile, "mkdtemp"),
    (os, "fsync"),
    (os, "link"),
    (os, "unlink"),
    (os, "rmdir"),
    (write, "save_file"),
    (Ledger, "append"),
)


def killed_at(call: int, work: Callable[[], object]) -> str | None:
    """Runs `work` in a child that dies before its `call`-th operation; what that was, or None if there are fewer."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        done = 0

        def dying(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **named: Any) -> Any:
                nonlocal done
                done += 1
                if done == call:
                    os.write(writing, what.encode())
                    os._exit(9)
                return function(*args, **named)

            return wrapped

        try:
            torch.set_num_threads(1)  # the parent's threads are not here to help
            signal.alarm(30)
            for place, name in WAYS:
                setattr(place, name, dying(name, getattr(place, name)))
            work()
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        message = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == (9 if message else 0)
    return message or None


@pytest.fixture
def next_outcome(run: Path, monkeypatch: pytest.MonkeyPatch) -> gf.Outcome:
    """What the child writes down; nothing is computed there, because threads do not live on in it."""
    gf.answer(run, gone(4), request_id="one")
    result = gf.unlearn(*gf.load_run(run), gone(5))
    shown = result.public()
    assert result.graph.digest
    monkeypatch.setattr(gf.Outcome, "public", lambda self: shown | {"certificate": self.certificate.to_dict()})
    return result


@pytest.mark.slow
def test_a_process_killed_anywhere_leaves_the_old_state_or_the_new(
    run: Path, next_outcome: gf.Outcome, tmp_path: Path
) -> None:
    old, new = gf.load_run(run)[1].digest, next_outcome.graph.digest
    seen: list[tuple[str, str]] = []
    for call in range(1, 200):
        place = Path(shutil.copytree(run, tmp_path / str(call) / "run"))
        how = killed_at(call, partial(gf.save_outcome, place, next_outcome, after=place, request_id="two", force=True))
        result = gf.load_run(place)[1].digest
        assert result in (old, new)
        if how is None:
            assert result == new
            assert os.listdir(place.parent) == ["run"]
            break
        seen.append((how, "new" if result == new else "old"))
        if place.exists():  # else see the test on a run between two renames
            assert_sound(place, entries=2 if result == new else 1, without=(4, 5) if result == new else (4,))
        if result == new:
            assert gf.answer(place, gone(5), request_id="two").repeated
        gf.answer(place, gone(7), request_id="three")
        assert_sound(place, entries=3 if result == new else 2, without=(4, 5, 7) if result == new else (4, 7))
        assert os.listdir(place.parent) == ["run"]
        assert hold_lock(place.parent, subject(7)) == []
        shutil.rmtree(place.parent)
    else:
        pytest.fail("the child never came to an end")
    assert {how for how, _ in seen} == {name for _, name in WAYS}
    assert [state for _, state in seen] == sorted((state for _, state in seen), reverse=True)  # old, then new
    assert {state for _, state in seen} == {"old", "new"}


@pytest.mark.slow
def test_a_process_killed_at_a_new_place_leaves_nothing_or_all(
    run: Path, next_outcome: gf.Outcome, tmp_path: Path
) -> None:
    for call in range(1, 200):
        place = tmp_path / str(call) / "run"
        place.parent.mkdir()
        how = killed_at(call, partial(gf.save_outcome, place, next_outcome, after=run))
        if how is None:
            break
        if not place.exists():
            gf.save_outcome(place, next_outcome, after=run)
        assert_sound(place, entries=2, without=(4, 5))
        assert os.listdir(place.parent) == ["run"]
    assert call > 10
    assert_sound(place, entries=2, without=(4, 5))


def between_two_renames(run: Path) -> Path:
    """As a writer leaves it that is killed there; `load` still finds it."""
    old = run.with_name(f".{run.name}.graphforget-old")
    run.rename(old)
    assert gf.load_run(run)[0].theta.numel() == 15
    return old


@pytest.mark.parametrize("what", [gf.verify_run, gf.load_released, lambda run: gf.releases_so_far(run, delta=1e-5)])
def test_a_run_between_two_renames_is_still_read(what: Callable[[Path], Any], run: Path) -> None:
    gf.answer(run, gone(4), request_id="one")
    between_two_renames(run)
    try:
        result = what(run)
    except gf.InputError as error:
        pytest.fail(str(error))
    assert getattr(result, "releases", 1) == 1


def test_a_run_between_two_renames_still_knows_its_answers(run: Path) -> None:
    first = gf.answer(run, gone(4), request_id="one")
    between_two_renames(run)
    try:
        again = gf.answer(run, gone(4), request_id="one")
    except gf.InputError as error:
        pytest.fail(str(error))
    assert again.summary == first.summary


def test_what_a_killed_writer_left_beside_a_run_goes_with_the_next_one(run: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = run.with_name(f".run.graphforget-{dead.pid}-abc")
    same_number = run.with_name(f".run.graphforget-{os.getpid()}-def")  # as after the restart of a container
    mine = run.with_name(f".run.graphforget-{os.getpid()}-abc")
    other = run.with_name(f".other.graphforget-{dead.pid}-abc")
    for folder in (left, same_number, mine, other, run.with_name(".run.graphforget-old")):
        folder.mkdir()
        (folder / "graph.json").write_text(subject(4))
    with locks.hold_lock(mine):
        gf.answer(run, gone(4))
    assert sorted(os.listdir(run.parent)) == sorted([mine.name, other.name, "run"])  # living ones and other runs stay
    gf.answer(run, gone(5))
    assert sorted(os.listdir(run.parent)) == sorted([other.name, "run"])


# -- at once ---------------------------------------------------------------------------------------------------------

WORK = """
import sys, time
from pathlib import Path
import graphforget as gf
run, go, count = sys.argv[1], Path(sys.argv[2]), 0
print("ready", flush=True)
while not go.exists():
    time.sleep(0.001)
for number in sys.argv[3:]:
    gf.answer(run, gf.Request(nodes=[f"subject-{int(number):04d}-name"]), request_id=f"id {number}")
"""


def started(run: Path, go: Path, *numbers: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORK, str(run), str(go), *map(str, numbers)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def wait_until_ready(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"


def finish(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        _, message = process.communicate(timeout=120)
        assert process.returncode == 0, message


@pytest.mark.slow
def test_two_processes_and_a_reader_at_once(run: Path, tmp_path: Path) -> None:
    """Every request is answered, in some order, and whoever reads meanwhile sees one whole state after the other."""
    go = tmp_path / "go"
    writers = [started(run, go, 4, 5, 6), started(run, go, 6, 7, 8)]  # the same request 6, by the same id
    wait_until_ready(*writers)
    go.touch()
    sizes = []
    ends = time.monotonic() + 100
    while any(writer.poll() is None for writer in writers) and time.monotonic() < ends:
        trained, graph = gf.load_run(run)
        assert trained.graph_digest == graph.digest
        sizes.append(graph.num_nodes)
    finish(*writers)
    sizes.append(gf.load_run(run)[1].num_nodes)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 35
    assert len(sizes) > 3
    assert_sound(run, entries=5, without=(4, 5, 6, 7, 8))
    assert {entry.request_id for entry in read_history(run).entries} == {f"id {number}" for number in range(4, 9)}
    assert os.listdir(run.parent) == ["run"]
    assert hold_lock(run.parent, subject(4)) == hold_lock(run.parent, subject(8)) == []


def meanwhile(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, other: Callable[[], object]) -> None:
    """Another process comes in once, right after `name` was called for the first time."""
    function, calls = getattr(place, name), iter(range(100))

    def wrapped(*args: Any, **named: Any) -> Any:
        result = function(*args, **named)
        if next(calls) == 0:
            other()
        return result

    monkeypatch.setattr(place, name, wrapped)


def test_a_reader_waits_while_a_run_is_replaced(run: Path) -> None:
    """`locks.py`: nobody reads a run directory while it is being replaced."""
    gf.answer(run, gone(4), out=run.with_name("new"))
    old = run.with_name(".run.graphforget-old")
    between, go_on = threading.Event(), threading.Event()

    def write() -> None:
        with parent_lock(run):
            run.rename(old)
            between.set()
            go_on.wait()
            run.with_name("new").rename(run)
            shutil.rmtree(old)

    writer = threading.Thread(target=write)
    writer.start()
    between.wait()
    threading.Timer(0.2, go_on.set).start()
    _, graph = gf.load_run(run)
    writer.join()
    assert graph.num_nodes == 39


def start_and_wait(thread: threading.Thread) -> None:
    """Gives the thread the time to get to where it has to wait."""
    thread.start()
    time.sleep(0.2)


def test_a_verifier_beside_a_writer_gives_no_false_alarm(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gf.answer(run, gone(4))
    other = gf.unlearn(*gf.load_run(run), gone(5))
    writer = threading.Thread(target=lambda: gf.save_outcome(run, other, after=run, force=True))
    meanwhile(monkeypatch, verify, "read_run", partial(start_and_wait, writer))
    try:
        result = gf.verify_run(run)
    except gf.Mismatch as mismatch:
        pytest.fail(str(mismatch))
    writer.join()
    assert result.checks
    assert_sound(run, entries=2, without=(4, 5))


@pytest.mark.slow
def test_an_answer_elsewhere_takes_model_and_record_of_one_state(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gf.answer(run, gone(4))
    other = gf.unlearn(*gf.load_run(run), gone(5))
    writer = threading.Thread(target=lambda: gf.save_outcome(run, other, after=run, force=True))
    meanwhile(monkeypatch, answering, "history_of", partial(start_and_wait, writer))
    gf.answer(run, gone(6), out=tmp_path / "new")
    monkeypatch.undo()
    writer.join()
    assert_sound(run, entries=2, without=(4, 5))
    assert_sound(tmp_path / "new", entries=2, without=(4, 6))
    try:
        result = gf.verify_run(tmp_path / "new")
    except gf.Mismatch as mismatch:
        pytest.fail(str(mismatch))
    assert result.checks


def test_two_writers_to_one_new_place_do_not_overwrite_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither was allowed to overwrite anything."""
    trained, graph = start()
    first = gf.unlearn(trained, graph, gone(4))
    second = gf.unlearn(trained, graph, gone(5))
    meanwhile(monkeypatch, write, "_write", lambda: gf.save_outcome(tmp_path / "new", first))
    with pytest.raises(gf.InputError):
        gf.save_outcome(tmp_path / "new", second)
    assert gf.load_run(tmp_path / "new")[1].digest == first.graph.digest


def test_an_outcome_names_nobody_in_what_may_be_shown(run: Path) -> None:
    trained, graph = gf.load_run(run)
    result = idea(trained, graph, gone(4), level="empirical")
    gf.save_outcome(run.with_name("other"), result, request_id="one")
    for name in (CERTIFICATE, OUTCOME, RELEASED, ANNEX, LEDGER, "run.json"):
        assert b"subject-" not in (run.with_name("other") / name).read_bytes(), name
    assert dataclasses.asdict(read_history(run.with_name("other")).entries[0])["level"] == "empirical"
    assert released_weights(run.with_name("other"), result.trained).numel() == 15


# -- what a request builds on ----------------------------------------------------------------------------------------


def rewritten(run: Path, change: Callable[[dict[str, Any]], None], key: Ed25519PrivateKey | None) -> None:
    """The ledger with other entries and fitting hashes; without the key nobody can sign them."""
    entries = [dataclasses.asdict(entry) for entry in read_history(run).entries]
    change(entries[0])
    (run / LEDGER).unlink()
    with Ledger(run / LEDGER) as ledger:
        for entry in entries:
            given = {k: v for k, v in entry.items() if k not in ("number", "previous", "hash", "signer", "signature")}
            ledger.append(sign=None if key is None else entry_signer(key), **given)


@pytest.mark.slow
@pytest.mark.parametrize("by_the_signer", [True, False], ids=["with the key", "without it"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entry: entry.update(level="exact", ratio=0.0), "does not agree with its certificate"),
        (lambda entry: entry.update(ratio=entry["ratio"] / 2), "does not agree with its certificate"),
        (lambda entry: entry.update(request_id="another"), "does not agree with its certificate"),
        (lambda entry: entry.update(answer="{}"), "holds no certificate"),
    ],
)
def test_a_rewritten_ledger_is_not_built_on(
    run: Path, change: Callable[[dict[str, Any]], None], message: str, by_the_signer: bool
) -> None:
    """Or the next honest signature would cover it."""
    key = Ed25519PrivateKey.generate()
    gf.answer(run, gone(4), request_id="one", key=key)
    gf.answer(run, gone(5), request_id="two", key=key)
    rewritten(run, change, key if by_the_signer else None)
    message = message if by_the_signer or "holds no" in message else "entry 1 of the ledger is not signed"
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    for what in (gf.verify_run, lambda place: gf.releases_so_far(place, delta=1e-5)):
        with pytest.raises(gf.Mismatch, match=message):
            what(run)
    with pytest.raises(gf.Mismatch, match=message):
        gf.answer(run, gone(6), key=key)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.parametrize("field", ["history", "recipe", "reach", "obstacles"])
def test_what_is_written_down_of_a_model_is_not_built_on_if_it_changed(run: Path, field: str) -> None:
    gf.answer(run, gone(4))
    content = json.loads((run / "run.json").read_text())
    other = {
        "history": [],
        "recipe": content["recipe"] | {"tolerance": 10.0},
        "reach": content["reach"] | {"hops": 0},
        "obstacles": ["none"],
    }
    (run / "run.json").write_text(json.dumps(content | {field: other[field]}))
    message = "recipe, reach or history of the model do not match the certificate"
    if field == "obstacles":  # with one the model has no releases to count
        message = "the certificate has 63 releases left, the model None"
    if field == "reach":  # which is that of the model, whatever is written down
        message = "run.json: the reach is not that of the model"
    with pytest.raises(gf.Mismatch, match=f"^{message}$"):
        gf.verify_run(run)
    refused = gf.InputError if field == "reach" else gf.Mismatch
    with pytest.raises(refused, match=message if field == "reach" else "^state: does not match the last certificate$"):
        gf.answer(run, gone(5))


def test_files_that_are_not_the_run_s_own_are_not_lost(run: Path) -> None:
    gf.answer(run, gone(4))
    (run / "notes.txt").write_text("mine")
    with pytest.raises(gf.InputError, match=r"holds 'notes\.txt', which is not the run's own: move it elsewhere first"):
        gf.answer(run, gone(5))
    assert (run / "notes.txt").read_text() == "mine"
    assert "files that are not the run's own: notes.txt" in gf.verify_run(run).unchecked


def test_training_anew_does_not_wipe_out_a_ledger(run: Path) -> None:
    gf.answer(run, gone(4))
    trained, graph = start()
    with pytest.raises(gf.InputError, match="holds a ledger of deletions"):
        gf.save_run(run, trained, graph, force=True)
    assert len(read_history(run).entries) == 1


def test_the_same_id_with_a_higher_level_is_refused(run: Path) -> None:
    gf.answer(run, gone(4), request_id="one")
    assert gf.answer(run, gone(4), request_id="one", level="certified").repeated
    with pytest.raises(gf.Refused, match="^request 'one' was answered before, at level 'certified', not 'exact'$"):
        gf.answer(run, gone(4), request_id="one", level="exact")


def test_released_weights_are_no_run(run: Path, tmp_path: Path) -> None:
    gf.answer(run, gone(4))
    with pytest.raises(gf.InputError, match="^these are released weights with noise"):
        gf.save_run(tmp_path / "new", *gf.load_released(run))
    assert not (tmp_path / "new").exists()


def test_private_files_are_closed_to_others(run: Path) -> None:
    gf.answer(run, gone(4))
    assert {path.name for path in run.iterdir() if path.stat().st_mode & 0o077} == set()
