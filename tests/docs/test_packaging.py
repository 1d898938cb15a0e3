"""The wheel is complete and runs in a fresh environment; the version is in one place; slow libraries load late."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import httpx
import pytest
import yaml

import graphforget as gf
from document_blocks import ROOT
from service_cases import free_port, wait_for

PACKAGE = ROOT / "src" / "graphforget"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
TEMPLATES = sorted(path for path in FORMS.glob("*.yml") if path.name != "config.yml")
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


def test_the_citation_file_has_what_its_format_asks_for() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert all(citation[name] for name in ("message", "title", "authors"))
    for reference in citation["references"]:
        assert {"type", "title", "authors", "year"} <= reference.keys()


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_an_issue_template_is_a_form(path: Path) -> None:
    """With a name, and fields that have a label each and no id twice."""
    form = yaml.safe_load(path.read_text())
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields) > 0


def test_there_are_issue_templates() -> None:
    assert {path.stem for path in TEMPLATES} == {"bug", "proposal"}


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


def test_the_installation_page_names_the_versions_that_are_pinned() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    page = (ROOT / "docs" / "installation.md").read_text()
    assert f"| torch | {pinned['torch']}, on the CPU |" in page
    assert f"| torch_geometric | {pinned['torch-geometric']} |" in page
    assert f"pip install torch=={pinned['torch']}" in page
    assert "| CUDA | never run |" in page
    (asked,) = [name for name in PROJECT["project"]["dependencies"] if name.startswith("torch>=")]
    least, below = re.findall(r"\d+\.\d+", asked)
    assert least == pinned["torch"].rpartition(".")[0]
    assert f"the package asks for {least}:" in page
    assert float(below) > float(least)


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


@pytest.mark.slow
def test_the_source_distribution_holds_what_a_build_needs(tmp_path: Path) -> None:
    """A wheel that is built from it alone holds the same files as one from the checkout."""
    source = _copy(tmp_path)
    sdist = _built("sdist", source, tmp_path)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", str(sdist)], check=True, capture_output=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "PKG-INFO"):
        assert (unpacked / name).is_file(), name
    shutil.rmtree(source)  # nothing can be read from there
    wheel = _built("wheel", unpacked, tmp_path)
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = [str(path.relative_to(PACKAGE.parent)) for path in PACKAGE.rglob("*.py")] + DATA
    assert [name for name in wanted if name not in held] == []
    (licence,) = [name for name in held if name.endswith("/LICENSE")]
    assert zipfile.ZipFile(wheel).read(licence) == (ROOT / "LICENSE").read_bytes()


def _build(folder: Path) -> Path:
    """The wheel, built without a network from the libraries of this environment."""
    wheel = _built("wheel", _copy(folder), folder)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", str(wheel)], check=True, capture_output=True)
    return wheel


def _built(kind: str, source: Path, folder: Path) -> Path:
    """The distribution of this kind, "wheel" or "sdist"."""
    subprocess.run(
        [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(folder), str(source)],
        check=True,
        capture_output=True,
    )
    (place,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    assert gf.__version__ in place.name
    return place


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
    """Installed from the wheel alone, with the pinned versions; then with the service, then from the source archive.

    It needs an index of packages.
    """
    wheel = _build(tmp_path)
    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=True)
    python, command = fresh / "bin" / "python", fresh / "bin" / "graphforget"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        text = [str(word) for word in words]
        ran = subprocess.run(text, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran

    install = (python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt")
    run(*install, "torch")
    run(*install, wheel)
    where = run(python, "-c", "import graphforget; print(graphforget.__file__)")
    assert Path(where.stdout.strip()).is_relative_to(fresh)
    run(command, "demo")
    assert (tmp_path / "graphforget-demo.html").stat().st_size > 10_000
    missing = subprocess.run([command, "serve", "init"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert missing.returncode == 2
    assert "graphforget[service]" in missing.stderr

    run(*install, f"{wheel}[service]")
    run(command, "serve", "init", "--home", "service")
    run(command, "train", "--data", "patients", "--model", "sgc", "--out", "run")
    run(command, "serve", "model", "patients", "run", "--home", "service")
    _answers(str(command), tmp_path, environment)

    shutil.rmtree(tmp_path / "source")
    sdist = _built("sdist", _copy(tmp_path), tmp_path)
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "graphforget")
    run(*install, "--no-deps", sdist)
    assert gf.__version__ in run(command, "--version").stdout


def _answers(command: str, folder: Path, environment: dict[str, str]) -> None:
    """The service of this folder starts, says that it is well and shows its page."""
    port = free_port()
    words = [command, "serve", "--home", "service", "--port", str(port)]
    server = subprocess.Popen(words, cwd=folder, env=environment, start_new_session=True)
    try:
        wait_for(f"http://127.0.0.1:{port}")
        page = httpx.get(f"http://127.0.0.1:{port}/", trust_env=False, follow_redirects=True)
        assert page.status_code == 200
        assert "graphforget" in page.text
    finally:
        server.terminate()
        try:
            server.wait(timeout=30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
