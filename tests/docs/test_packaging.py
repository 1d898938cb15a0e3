"""The wheel is complete and runs in a fresh environment; the version is in one place; slow libraries load late."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import graphforget as gf
from document_blocks import ROOT

PACKAGE = ROOT / "src" / "graphforget"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DATA = sorted(
    str(path.relative_to(PACKAGE.parent))
    for path in PACKAGE.rglob("*")
    if path.is_file() and path.suffix not in (".pyc", ".py") and "__pycache__" not in path.parts
)


def test_the_version_is_in_one_place() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "graphforget.__version__"}
    named = [path for path in PACKAGE.rglob("*.py") if re.search(r"^__version__ =", path.read_text(), re.MULTILINE)]
    assert named == [PACKAGE / "__init__.py"]
    assert "version" not in yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_the_extras_are_those_of_the_installation_page() -> None:
    page = (ROOT / "docs" / "installation.md").read_text()
    extras = PROJECT["project"]["optional-dependencies"]
    assert {"service", "docs", "parquet", "mlflow", "dev"} == set(extras)
    assert all(f"graphforget[{name}]" in page for name in extras)


def test_everything_that_the_checks_need_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {_plain(line.split("==")[0]) for line in lines if "==" in line}
    needed = [*PROJECT["project"]["dependencies"]]
    for wanted in PROJECT["project"]["optional-dependencies"].values():
        needed += [name for name in wanted if not name.startswith("graphforget[")]
    assert [name for name in needed if _plain(re.split(r"[\[<>=,]", name)[0]) not in pinned] == []
    assert "torch==2.13.0" in lines


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import graphforget",
        "import graphforget.cli.app",
        "import graphforget as gf; g = gf.synthetic(nodes=60, edges=120, columns=4, classes=2); "
        "gf.unlearn(gf.train(g, 'sgc'), g, gf.Request(nodes=[3]))",
    ],
    ids=["import", "command line", "train and unlearn"],
)
def test_matplotlib_and_scikit_learn_are_loaded_only_where_they_are_used(code: str) -> None:
    """A graph library of the package may load them for itself: then they are loaded by it, before our code runs."""
    shown = "import sys; print([name for name in ('matplotlib', 'sklearn') if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", f"{code}\n{shown}"], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_the_wheel_holds_all_data_of_the_package(tmp_path: Path) -> None:
    """Templates, tables of the paper, stubs, the web page of the service, its migrations."""
    wheel = _build(tmp_path)
    held = set(zipfile.ZipFile(wheel).namelist())
    assert len(DATA) > 10
    assert [name for name in DATA if name not in held] == []
    sources = [str(path.relative_to(PACKAGE.parent)) for path in PACKAGE.rglob("*.py")]
    assert [name for name in sources if name not in held] == []
    assert [name for name in held if name.startswith(("tests", "docs", "benchmarks", "notebooks"))] == []


def _build(folder: Path) -> Path:
    """The wheel, built without a network from the libraries of this environment."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(_copy(folder))],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    assert gf.__version__ in wheel.name
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", str(wheel)], check=True, capture_output=True)
    return wheel


def _copy(folder: Path) -> Path:
    """The files of the package alone: building in the checkout would leave a folder `build` in it."""
    place = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", place / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place / name)
    return place


@pytest.mark.long
def test_the_wheel_runs_in_a_fresh_environment(tmp_path: Path) -> None:
    """Installed from the wheel alone, with the pinned versions. It needs an index of packages."""
    wheel = _build(tmp_path)
    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=True)
    python = fresh / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*install, "torch"], check=True, cwd=tmp_path)
    subprocess.run([*install, str(wheel)], check=True, cwd=tmp_path)
    where = subprocess.run(
        [str(python), "-c", "import graphforget; print(graphforget.__file__)"],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(fresh)
    ran = subprocess.run([str(fresh / "bin" / "graphforget"), "demo"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "graphforget-demo.html").stat().st_size > 10_000
