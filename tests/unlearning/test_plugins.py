"""Methods and attacks of other packages: found, checked, and never more than they can show."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import graphforget as gf
from cases import ENVIRONMENT, Run
from graphforget.audits.plugged import plugged_attacks
from graphforget.experiments import benchmark_2026, newer_attacks
from graphforget.experiments.cells import Row
from graphforget.experiments.reproduce import ReproductionPlan
from graphforget.plugins import PluginWarning
from graphforget.testing import check_request, example_graph, example_requests
from graphforget.unlearning.registry import plugged_methods

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "graphforget-example-method"
HEADER = """
import dataclasses
import torch
import graphforget as gf
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.exact import Exact
from graphforget.certificates.claims.objective_noise import ObjectiveNoise
from graphforget.certificates.claims.residual_ball import ResidualBall
from graphforget.certificates.residual import residual
from graphforget.training.objective import minimise
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import MethodResult

@dataclasses.dataclass(frozen=True)
class Options:
    size: float = 0.1

class Planted(Method):
    name, title, reference, level, options = "planted", "A planted method", "-", "{level}", Options

    def gradients(self, trained):
        return 1

    def change(self, task, options):
        theta = task.theta + options.size
        claim = Empirical("patient-0017 was deleted")
        {body}
        updated = task.trained.with_update(theta, task.after, task.history_entry(self.name, theta))
        return MethodResult(updated, claim)
"""
names = itertools.count()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs a package with these entry points and this code, for one test."""

    def add(
        entries: dict[str, str], code: str, *, group: str = "graphforget.methods", package: str = "planted"
    ) -> None:
        module = f"planted_{next(names)}"
        folder = tmp_path / module
        folder.mkdir()
        (folder / f"{module}.py").write_text(code)
        info = folder / f"{package}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
        lines = [f"{name} = {module}:{what}" for name, what in entries.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
        monkeypatch.syspath_prepend(str(folder))
        plugged_methods.cache_clear()
        plugged_attacks.cache_clear()

    yield add
    monkeypatch.undo()
    plugged_methods.cache_clear()
    plugged_attacks.cache_clear()


def method(body: str = "", *, level: str = "empirical") -> str:
    return HEADER.format(body=textwrap.indent(textwrap.dedent(body), " " * 8).strip(), level=level)


def start() -> tuple[gf.Trained, gf.Graph]:
    graph = example_graph()
    return gf.train(graph, "sgc", mu=0.1), graph


def test_a_method_of_another_package_is_unlearned_planned_and_compared_with(install: Callable[..., None]) -> None:
    install({"planted": "Planted"}, method())
    trained, graph = start()
    outcome = check_request("planted", trained, graph, example_requests(graph)["nodes"])
    assert outcome is not None
    assert outcome.level == "empirical"
    assert outcome.details["package"] == "planted 0.1"
    assert "patient" not in json.dumps(outcome.public())  # the words of its claim are not published
    assert "planted" not in gf.METHODS
    rows = {row.method: row for row in gf.compare(graph, "sgc", gf.Request(nodes=[4]), methods=["planted"])}
    assert rows["planted"].level == "empirical"
    with pytest.raises(gf.InputError, match=r"^method 'planted' has no option 'other', only size$"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="planted", other=1)


def test_the_listing_says_where_a_method_comes_from(install: Callable[..., None], run: Run) -> None:
    install({"planted": "Planted"}, method())
    rows = json.loads(run("methods", "--json").stdout)
    assert {row["name"]: row["from"] for row in rows}["planted"] == "planted 0.1"
    assert {row["from"] for row in rows if row["name"] in gf.METHODS} == {"graphforget"}
    assert "from" in run("methods").stdout


@pytest.mark.parametrize(
    ("entries", "code", "reason"),
    [
        ({"newton": "Planted"}, method(), "graphforget itself has this name"),
        ({"auto": "Planted"}, method(), "graphforget itself has this name"),
        ({"utu": "Planted"}, method(), "graphforget itself has this name"),
        ({"Planted!": "Planted"}, method(), "a name has small letters"),
        ({"other": "Planted"}, method(), "its method is called 'planted'"),
        ({"planted": "Missing"}, method(), "module '.*' has no attribute 'Missing'"),
        ({"planted": "Planted"}, "raise RuntimeError('broken\\nin two lines')", "broken in two lines"),
        ({"planted": "Planted"}, "import sys; sys.exit(3)", "3"),
        ({"planted": "Planted"}, "def Planted(:", "invalid syntax"),
        ({"planted": "Options"}, method(), "it is no graphforget.Method"),
        ({"planted": "Planted"}, method(level="exact"), "its level is 'exact'"),
        ({"planted": "Planted"}, method(level="conditional"), "its level is 'conditional'"),
    ],
)
def test_what_cannot_be_used_costs_one_warning_and_nothing_else(
    entries: dict[str, str], code: str, reason: str, install: Callable[..., None]
) -> None:
    install(entries, code)
    name = next(iter(entries))
    with pytest.warns(
        PluginWarning, match=f"^the method '{name}' of package planted 0.1 is left out, because "
    ) as seen:
        assert plugged_methods() == {}
    assert len(seen) == 1
    assert reason.split("'.*'")[0] in str(seen[0].message)
    assert "\n" not in str(seen[0].message)
    trained, graph = start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was said once
        assert gf.unlearn(trained, graph, gf.Request(nodes=[4])).level == "certified"
        with pytest.raises(gf.InputError, match="^there is no method 'magic', only auto, newton, .*, ascent$"):
            gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="magic")


def test_of_two_packages_with_one_name_the_first_counts(install: Callable[..., None]) -> None:
    install({"planted": "Planted"}, method(), package="b-package")
    install({"planted": "Planted"}, method(), package="a-package")
    with pytest.warns(PluginWarning, match="of package b-package 0.1 is left out, because package a-package 0.1 has"):
        assert plugged_methods()["planted"].package == "a-package 0.1"


def test_the_command_line_says_it_in_one_sentence(install: Callable[..., None], run: Run) -> None:
    install({"planted": "Planted"}, "raise RuntimeError('broken')")
    ran = run("methods")
    assert ran.code == 0
    assert (
        " ".join(ran.stderr.split())
        == "graphforget: the method 'planted' of package planted 0.1 is left out, because broken"
    )


CLAIMS = {
    "claim = Exact()": "cannot show what Exact claims",
    "claim = ObjectiveNoise(epsilon=0.1, delta=1e-5, noise=1.0, budget=0.1, conditions=())": "what ObjectiveNoise",
    "class Mine(Exact): pass\nclaim = Mine()": "cannot show what Mine claims",
    "theta = task.theta": "the optimum may be .* away, over the tolerance",
    "return MethodResult(dataclasses.replace(task.trained, theta=theta * float('nan')), claim)": "that are not finite",
    "task.trained.theta.add_(1)": "changed the weights that it was given",
    "raise ValueError('bad\\nluck')": "the method 'planted' of package planted 0.1 failed: bad luck",
    "return None": "did not return the weights of such a model",
    "return MethodResult(dataclasses.replace(task.trained, theta=theta[:3]), claim)": "did not return the weights",
    "return MethodResult(task.trained, claim, details={'a': object()})": "are no JSON",
}


@pytest.mark.parametrize(("body", "reason"), CLAIMS.items())
def test_what_it_cannot_show_or_gets_wrong_is_refused(body: str, reason: str, install: Callable[..., None]) -> None:
    install({"planted": "Planted"}, method(body, level="certified"))
    trained, graph = start()
    given: Any = {"method": "planted", "level": "empirical", "otherwise": "refuse"}
    with pytest.raises(gf.Refused, match=reason) as caught:
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), **given)
    assert "\n" not in str(caught.value)


BALL = """
theta = minimise(task.after, task.theta, gradient_tolerance={tolerance}).theta + {away}
measured = residual(task.after, theta)
claim = ResidualBall.issue(measured, task.trained, epsilon=1.0, delta=1e-5)
"""
LIE = """
near = minimise(task.after, task.theta, gradient_tolerance=1e-9).theta
claim = ResidualBall.issue(residual(task.after, near), task.trained, epsilon=1.0, delta=1e-5)
theta = near + 1
"""
OTHER_MODEL = """
near = minimise(task.after, task.theta, gradient_tolerance=1e-9).theta
claim = ResidualBall.issue(residual(task.after, near), task.trained, epsilon=1.0, delta=1e-5)
easy = dataclasses.replace(task.trained.recipe, mu=1e6, sigma=1e6)
mine = dataclasses.replace(task.trained, theta=near + 1, recipe=easy, releases=(), graph_digest=task.retained.digest)
return MethodResult(mine, claim, centre=near, restarts=True)
"""


def test_a_certified_claim_is_measured_here_and_verifies(install: Callable[..., None]) -> None:
    install({"planted": "Planted"}, method(BALL.format(tolerance=1e-9, away=0.0), level="certified"))
    trained, graph = start()
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="planted", otherwise="refuse")
    assert (outcome.level, outcome.method) == ("certified", "planted")
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph).checks
    assert gf.plan(trained, graph, gf.Request(nodes=[4]), method="planted").level == "certified"
    assert outcome.trained.releases == (*trained.releases, outcome.trained.releases[-1])


@pytest.mark.parametrize("body", [BALL.format(tolerance=1e-9, away=1.0), LIE, OTHER_MODEL])
def test_a_certified_claim_about_other_weights_is_refused(body: str, install: Callable[..., None]) -> None:
    """Whatever model, centre, count of releases or recipe it returns: the distance of its weights is measured."""
    install({"planted": "Planted"}, method(body, level="certified"))
    trained, graph = start()
    for level in (None, "empirical"):
        given: Any = {"method": "planted", "otherwise": "refuse", "level": level}
        with pytest.raises(gf.Refused, match="the optimum may be .* away, over the tolerance"):
            gf.unlearn(trained, graph, gf.Request(nodes=[4]), **given)


OF_DELETED_DATA = """
near = minimise(task.after, task.theta, gradient_tolerance=1e-9).theta
if {condition}:
    claim = ResidualBall.issue(residual(task.after, near), task.trained, epsilon=1.0, delta=1e-5)
    theta = near + {away}
"""


@pytest.mark.parametrize("level", [None, "certified", "empirical"])
def test_the_level_and_method_that_are_published_do_not_follow_its_claim_or_its_distance(
    level: Any, install: Callable[..., None]
) -> None:
    trained, graph = start()
    published = []
    for condition, away in (("True", 0.0), ("True", 1.0), ("False", 0.0)):
        install(
            {"planted": "Planted"}, method(OF_DELETED_DATA.format(condition=condition, away=away), level="certified")
        )
        outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="planted", level=level)
        certificate = outcome.certificate.to_dict()
        published.append({name: certificate[name] for name in ("level", "method", "chosen", "claim")})
        is_near = (condition, away) == ("True", 0.0)
        assert any("was retrained, because the optimum may be" in note for note in outcome.notes) != is_near  # private
    assert published[0]["level"] == "certified"
    assert published[0] == published[1] == published[2]


def test_a_method_without_a_guarantee_that_changes_nothing_is_refused(install: Callable[..., None]) -> None:
    install({"planted": "Planted"}, method("theta = task.theta"))
    trained, graph = start()
    with pytest.raises(gf.Refused, match="changed no weight although the request may touch the training"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="planted")


def test_a_method_that_declares_no_guarantee_gets_none(install: Callable[..., None]) -> None:
    install({"planted": "Planted"}, method(BALL.format(tolerance=1e-9, away=0.0)))
    trained, graph = start()
    assert gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="planted").level == "empirical"


def test_ensembles_and_stacked_models_are_not_its_to_change(install: Callable[..., None]) -> None:
    install({"planted": "Planted"}, method())
    graph = example_graph()
    for model, options in (("stacked-gcn", {"parts": 2}), ("sharded-gcn", {"shards": 2})):
        short: Any = {"hidden": 4, "epochs": 2, **options}
        with pytest.raises(gf.InputError, match="^method 'planted' does not work here: the model"):
            gf.unlearn(gf.train(graph, model, **short), graph, gf.Request(nodes=[4]), method="planted")


ATTACKS = """
import numpy as np
from graphforget.audits.plugged import Attack

class Certainty(Attack):
    name, title = "certainty", "-"
    def scores(self, query):
        best = query.logits.max(axis=1) - query.shadow.max(axis=1)
        return best[query.removed], best[query.outsiders]

class Short(Attack):
    name, title = "short", "-"
    def scores(self, query):
        return np.zeros(3), np.zeros(2)

class Broken(Attack):
    name, title = "broken", "-"
    def scores(self, query):
        raise ValueError("bad luck")
"""


@pytest.mark.slow
def test_an_attack_of_another_package_adds_rows_or_is_left_out(install: Callable[..., None]) -> None:
    entries = {"certainty": "Certainty", "short": "Short", "broken": "Broken"}
    install(entries, ATTACKS, group="graphforget.attacks")
    graph = example_graph(5, nodes=80, edges=150)
    trained = gf.train(graph, "sgc")
    request = gf.Request(nodes=[int(n) for n in graph.numbers[graph.train_rows[:12]]])
    small: Any = {"models": 8, "seeds": 2, "jobs": 1}
    result = gf.audit(trained, graph, request, method="newton", **small)
    rows = {row.attack for row in result.rows}
    assert {"certainty", "membership"} <= rows
    assert not {"short", "broken"} & rows
    for reason in ("did not give one finite number for each item", "package planted 0.1 failed: bad luck"):
        assert any(reason in note for note in result.notes)


def test_attacks_cannot_take_the_names_of_others(install: Callable[..., None]) -> None:
    install({"links": "Certainty"}, ATTACKS, group="graphforget.attacks")
    with pytest.warns(
        PluginWarning, match="^the attack 'links' of package planted 0.1 is left out, because graphforget"
    ):
        assert plugged_attacks() == {}


# One process for everything that is done with the installed package.
ALL = """
import sys
import pytest
from graphforget.cli.app import main

print("tests", int(pytest.main(["-q", "-p", "no:cacheprovider", "tests"])), flush=True)
given = "compare --data patients --model sgc --request node:2% --methods no_op,descent --json"
for arguments in ("methods --json", given):
    sys.argv = ["graphforget", *arguments.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code
    sys.stdout.flush()
"""


@pytest.mark.slow
def test_the_example_package_is_installed_passes_its_tests_and_is_compared_with(tmp_path: Path) -> None:
    place = tmp_path / "installed"
    copy = tmp_path / "example"
    subprocess.run(["cp", "-r", EXAMPLE, copy], check=True)  # a build writes beside its sources
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", place, copy], check=True, env=ENVIRONMENT)
    environment = ENVIRONMENT | {"PYTHONPATH": f"{place}:{ENVIRONMENT['PYTHONPATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", ALL], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tests, methods, comparison = done.stdout.strip().splitlines()[-3:]
    assert tests == "tests 0"
    assert {row["name"]: row["from"] for row in json.loads(methods)}["descent"] == "graphforget-example-method 0.1.0"
    rows = json.loads(comparison)["rows"]
    assert [row["method"] for row in rows] == ["retrain", "no_op", "descent"]
    assert rows[2]["level"] == "empirical"


def test_reproduce_compares_a_method_of_another_package(install: Callable[..., None], tmp_path: Path) -> None:
    install({"planted": "Planted"}, method())
    plan = ReproductionPlan(tmp_path, methods=(("sgc", "planted"),))
    key: Row = {"data": "patients", "model": "sgc", "method": "planted", "seed": 0}
    for experiment, sizes in ((benchmark_2026.EXPERIMENT, 30), (newer_attacks.EXPERIMENT, 18)):
        added = [cell for cell in plan.cells(experiment) if cell.key["method"] == "planted"]
        assert len(added) == sizes
        assert len(plan.cells(experiment)) == len(experiment.cells(quick=False, seeds=3)) + sizes  # no cell twice
    compared = benchmark_2026.compared(store=tmp_path, workload="random", **key)
    assert compared["level"] == "empirical"
    (line,) = benchmark_2026.table([key | {"data": "cora", "workload": "random"} | compared]).texts
    assert line[:4] == ["Cora", "random", "SGC", "planted"]
    attacked = newer_attacks.attacked(store=tmp_path, kind="nodes", **key)
    lines = newer_attacks.table([key | {"data": "cora", "kind": "nodes"} | attacked]).texts
    assert {(each[1], each[2]) for each in lines} == {("SGC, planted", "output change"), ("SGC, planted", "recall")}


def test_reproduce_names_experiments_that_take_further_methods(install: Callable[..., None], run: Run) -> None:
    install({"planted": "Planted"}, method())
    for given, told in (
        (
            ("table1", "--method", "planted"),
            "table1 compares no further methods, only benchmark-2026 and newer-attacks",
        ),
        (("benchmark-2026", "--method", "nobody"), "there is no method 'nobody'"),
        (("benchmark-2026", "--method", "planted:no-model"), "there is no model 'no-model'"),
    ):
        done = run("reproduce", *given)
        assert done.code == 2
        assert told in " ".join(done.stderr.split())


def test_the_command_of_a_result_names_its_further_methods(tmp_path: Path) -> None:
    plan = ReproductionPlan(Path("results"), methods=(("sgc", "planted"),))
    assert plan.command("benchmark-2026", further=True).endswith(" --out results --method planted:sgc")
    assert plan.command("table1") == "graphforget reproduce table1 --out results"
