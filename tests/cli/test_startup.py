"""Commands that need no model start without the libraries that are slow to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import graphforget as gf
from cases import ENVIRONMENT, random_graph

SLOW = ("torch", "torch_geometric", "scipy", "sklearn", "matplotlib")
CODE = f"""
import sys
from graphforget.cli.app import main
try:
    main()
except SystemExit as end:
    code = end.code or 0
print([name for name in {SLOW} if name in sys.modules], code, file=sys.stderr)
"""


def process(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, *command)
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, which has answered one request."""
    place, graph = tmp_path_factory.mktemp("startup"), random_graph(3, nodes=20, edges=30)
    gf.save_run(place / "run", gf.train(graph, "sgc"), graph)
    gf.answer(place / "run", gf.Request(nodes=[4]), request_id="first")
    return place


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("--help",), "Usage: graphforget"),
        (("--version",), gf.__version__),
        (("keygen", "key"), "key.pub"),
        (("ledger", "run"), "first"),
        (("methods",), "newton"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_without_a_model_imports_none_of_the_slow_libraries(
    arguments: tuple[str, ...], printed: str, folder: Path
) -> None:
    ran = process("-c", CODE, *arguments, folder=folder)
    assert printed in ran.stdout
    assert ran.stderr.splitlines()[-1] == "[] 0"


def test_the_check_sees_a_slow_library(folder: Path) -> None:
    """Otherwise the test above would pass whatever is imported."""
    ran = process("-c", f"import scipy\n{CODE}", "--version", folder=folder)
    assert ran.stderr.splitlines()[-1] == "['scipy'] 0"


def test_the_package_runs_as_a_module(folder: Path) -> None:
    ran = process("-m", "graphforget", "--version", folder=folder)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert gf.__version__ in ran.stdout


def test_a_shell_can_complete_the_commands(folder: Path) -> None:
    usage = process("-m", "graphforget", "--help", folder=folder).stdout
    assert "--install-completion" in usage
    assert "--show-completion" in usage
    ask = {"_GRAPHFORGET_COMPLETE": "complete_bash", "COMP_WORDS": "graphforget key", "COMP_CWORD": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "graphforget"],
        env=ENVIRONMENT | ask,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["keygen"]
