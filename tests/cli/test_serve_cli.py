"""The command `serve` and its own commands."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import graphforget as gf
from cases import Run, RunJson, random_graph
from graphforget.cli.serve import NEEDED, SUBCOMMANDS


@pytest.fixture
def home(tmp_path: Path, run_json: RunJson) -> Path:
    run_json("serve", "init", "--home", str(tmp_path / "service"))
    return tmp_path / "service"


@pytest.mark.parametrize("command", [(), *((one.__name__,) for one in SUBCOMMANDS)], ids=" ".join)
def test_help_has_an_example(run: Run, command: tuple[str, ...]) -> None:
    ran = run("serve", *command, "--help")
    assert ran.code == 0
    assert "Example: graphforget serve" in " ".join(ran.stdout.split())
    assert "--json" in ran.stdout


def test_a_service_is_made_with_a_model_and_a_token(home: Path, tmp_path: Path, run: Run, run_json: RunJson) -> None:
    graph = random_graph(3, nodes=20, edges=30)
    gf.save_run(tmp_path / "run", gf.train(graph, "sgc"), graph)
    at = ("--home", str(home))
    assert run_json("serve", "model", "small", str(tmp_path / "run"), *at)["model"] == "small"
    first = run_json("serve", "token", "office", "--scope", "approve", "--scope", "read", *at)
    assert first["token"].startswith("gft_")
    assert run("serve", "token", "office", *at).code == 2  # the name is taken
    assert run_json("serve", "token", "office", "--revoke", *at)["token"] is None
    assert run_json("serve", "migrate", *at)["revision"] == "head"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("init",), "already"),
        (("token", "x", "--scope", "everything"), "scopes"),
        (("token", "nobody", "--revoke"), "no token"),
        (("model", "x", "nowhere"), "nowhere"),
        (("model", "x", "nowhere", "--identity-type", "name"), "type of identities"),
        (("model", "x", "nowhere", "--mlflow", "name"), "NAME:VERSION"),
        (("model", "x", "nowhere", "--purge", " "), "purge list"),
        (("migrate", "--to", "nowhere"), "revision 'nowhere'"),
        (("migrate", "--to", "nowhere", "--down"), "revision 'nowhere'"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(home: Path, run: Run, arguments: tuple[str, ...], word: str) -> None:
    ran = run("serve", *arguments, "--home", home)
    assert (ran.code, ran.stdout) == (2, "")
    assert word in ran.stderr
    assert ran.stderr.startswith("graphforget: ")


def test_a_folder_without_a_service_is_named(tmp_path: Path, run: Run) -> None:
    ran = run("serve", "token", "x", "--home", tmp_path)
    assert ran.code == 2
    assert "serve init" in ran.stderr


def test_the_command_in_that_sentence_makes_the_service(tmp_path: Path, run: Run) -> None:
    command = run("serve", "token", "x", "--home", tmp_path / "new").stderr.split("'")[1]
    assert run(*command.split()[1:]).code == 0
    assert run("serve", "token", "x", "--home", tmp_path / "new").code == 0


@pytest.mark.parametrize("command", [("serve", "init"), ("serve", "token", "x"), ("serve", "migrate")], ids=" ".join)
def test_a_database_that_cannot_be_reached_is_bad_input(tmp_path: Path, run: Run, command: tuple[str, ...]) -> None:
    url = "postgresql+psycopg://somebody:secret@127.0.0.1:1/x"
    home = tmp_path / "new"
    ran = run("serve", "init", "--home", home, "--database", url)
    if command[1] != "init":
        ran = run(*command, "--home", home)
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("graphforget: the database cannot be used: ")
    assert ran.stderr.count("\n") == 1
    assert "secret" not in ran.stderr


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_home_that_cannot_be_made_is_bad_input(tmp_path: Path, run: Run, place: str) -> None:
    (tmp_path / "file").write_text("mine")
    ran = run("serve", "init", "--home", tmp_path / place)
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"graphforget: {tmp_path / place} ")
    assert ran.stderr.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_without_the_extra_the_message_says_how_to_install_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphforget.cli.serve.find_spec", lambda name: None)
    ran = run("serve", "token", "x")
    assert ran.code == 2
    assert f"{NEEDED[0]} is not installed, 'pip install graphforget[service]'" in ran.stderr


def test_a_trial_leaves_a_service_that_exists_alone(home: Path, run: Run) -> None:
    before = {file: file.read_bytes() for file in home.iterdir()}
    ran = run("serve", "trial", "--home", home)
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1
    assert "a trial needs a new folder" in ran.stderr
    assert {file: file.read_bytes() for file in home.iterdir()} == before


@pytest.mark.parametrize("command", [("serve",), ("serve", "api"), ("serve", "trial")], ids=" ".join)
def test_a_port_that_is_taken_is_bad_input(home: Path, tmp_path: Path, run: Run, command: tuple[str, ...]) -> None:
    place = tmp_path / "new" if "trial" in command else home
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = run(*command, "--home", place, "--port", str(taken.getsockname()[1]))
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("graphforget: nothing can listen on 127.0.0.1:")
    assert ran.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", [("serve",), ("serve", "api")], ids=" ".join)
def test_nothing_is_said_to_listen_without_a_service(tmp_path: Path, run: Run, command: tuple[str, ...]) -> None:
    ran = run(*command, "--home", tmp_path)
    assert (ran.code, ran.stdout) == (2, "")
    assert "serve init" in ran.stderr
