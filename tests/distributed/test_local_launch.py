"""`graphforget launch`: nothing listens beyond the loopback, a kill costs a restart, and one exit code counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import graphforget as gf
from distributed_cases import ENVIRONMENT, on_ranks, result_of, sharded
from graphforget.distributed.group import Group
from graphforget.distributed.launch import BACKEND, STORE
from graphforget.distributed.local_launch import run_ranks

LISTENS = "0A"  # a state in /proc/net/tcp
LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = gf.synthetic(nodes=600, edges=2400, columns=6, classes=3, train=0.6)
    return sharded(graph, tmp_path_factory.mktemp("launch"), 2)[2]


def watched(shards: Path, out: Path, look: Callable[[list[int]], None]) -> subprocess.CompletedProcess[str]:
    """A training on two ranks, with a look at the launcher and its ranks every few milliseconds."""
    call = [sys.executable, "-m", "graphforget", "launch", "--ranks", "2", "--max-restarts", "1", "--"]
    words = [*call, "train", "--data", str(shards), "--model", "sgc", "--out", str(out), "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    late = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < late:
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        look([process.pid, *(map(int, listed.read_text().split()) if listed.exists() else ())])
        time.sleep(0.01)
    out_text, err_text = process.communicate(timeout=10)
    return subprocess.CompletedProcess(words, process.returncode, out_text, err_text)


def listening(pids: list[int]) -> set[str]:
    """The addresses on which these processes listen, as /proc writes them."""
    held = set()
    for pid in pids:
        try:
            held |= {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
        except OSError:  # it has ended, or has closed a file meanwhile
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        path = Path(f"/proc/net/{table}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            cells = line.split()
            if cells[3] == LISTENS and f"socket:[{cells[9]}]" in held:
                found.add(cells[1].split(":")[0])
    return found


@pytest.mark.slow
def test_nothing_listens_beyond_the_loopback(shards: Path, tmp_path: Path) -> None:
    seen: set[str] = set()
    result_of(watched(shards, tmp_path / "run", lambda pids: seen.update(listening(pids))))
    assert seen  # gloo's own sockets
    assert seen <= set(LOOPBACK)


@pytest.mark.slow
def test_a_killed_rank_costs_a_restart(shards: Path, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(pids: list[int]) -> None:
        if len(pids) == 3 and not killed and listening(pids[1:]):
            killed.append(pids[2])
            os.kill(pids[2], signal.SIGKILL)

    done = watched(shards, tmp_path / "run", kill)
    result_of(done)
    assert killed
    assert "rank 1 was killed by signal 9: all start again" in done.stderr


@pytest.mark.parametrize(
    ("program", "code", "starts"),
    [
        ("os._exit(0)", 0, 1),
        ("open(noted, 'w').write('0') and os.kill(os.getpid(), 9)", 0, 1),  # killed after the command was done
        ("open(noted, 'w').write('2') and os.kill(os.getpid(), 9)", 2, 1),
        ("os._exit(3) if rank else time.sleep(60)", 3, 1),  # one code, and the other rank is ended
        ("os.kill(os.getpid(), 9) if rank else time.sleep(60)", 1, 3),
        ("os.kill(os.getpid(), 9) if rank and not attempt else time.sleep(0 if attempt else 60)", 0, 2),
    ],
)
def test_exit_codes_and_restarts(tmp_path: Path, program: str, code: int, starts: int) -> None:
    lines = "import os, time; rank, attempt = int(os.environ['RANK']), int(os.environ['TORCHELASTIC_RESTART_COUNT'])"
    lines += "; noted = os.environ['GRAPHFORGET_STORE'] + '/ended'"
    words = [sys.executable, "-c", f"{lines}; open({str(tmp_path)!r} + f'/{{attempt}}', 'w'); {program}"]
    said: list[str] = []
    started = time.monotonic()
    assert run_ranks(words, 2, max_restarts=2, say=said.append) == code
    assert time.monotonic() - started < 30
    assert len(list(tmp_path.iterdir())) == starts


@pytest.mark.slow
def test_what_goes_wrong_at_the_end_of_a_process_does_not_change_the_exit_code(shards: Path, tmp_path: Path) -> None:
    """Under load, a thread of gloo sometimes aborted a rank after the command was done."""
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, os\n'RANK' in os.environ and atexit.register(os.abort)\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [ENVIRONMENT.get("PYTHONPATH")])])
    one = {"RANK": "0", "WORLD_SIZE": "1", STORE: str(tmp_path), "TORCHELASTIC_RESTART_COUNT": "0"}
    words = [sys.executable, "-m", "graphforget", "train", "--data", str(shards), "--out", str(tmp_path / "run")]
    given = ENVIRONMENT | one | {"PYTHONPATH": path}
    done = subprocess.run(words, env=given, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("has 2 parts, and 1 ranks were started: start as many ranks as there are parts\n")


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "words"), [("nccl", "not every rank has a GPU"), ("mpi", "gloo and nccl")])
def test_a_backend_that_ranks_cannot_have_is_one_sentence(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, words: str
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setitem(ENVIRONMENT, BACKEND, backend)
    done = on_ranks(2, "train", "--data", shards, "--out", tmp_path / "run")
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert words in sentence
    assert not (tmp_path / "run").exists()


class PlantedStore:
    """A store of torchrun in which somebody else has written."""

    def __init__(self, value: bytes) -> None:
        self.value = value

    def check(self, keys: list[str]) -> bool:
        return True

    def get(self, key: str) -> bytes:
        return self.value


@pytest.mark.parametrize(("planted", "code"), [(b"0", None), (b"00", None), (b"-1", None), (b"x", None), (b"2", 2)])
def test_a_planted_note_never_makes_a_command_look_done(planted: bytes, code: int | None) -> None:
    group = Group.__new__(Group)
    vars(group).update(restarts=1, _folder=None, _store=PlantedStore(planted))
    assert group.ended_before() == code
