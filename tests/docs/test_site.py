"""The documentation site: it builds without a warning, loads nothing, and its references follow from the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import graphforget as gf
from document_blocks import ROOT
from graphforget.cli.app import COMMANDS

ORDER = [
    *("Getting started", "Which model and method", "Bring your own model", "Answer requests in production"),
    *("Large graphs", "Audit", "Certificates", "Mathematics", "Compare methods", "API reference", "Command line"),
    *("Results", "Design", "Changelog"),
]
MOST_LINES_OF_THE_FIRST_SCREEN = 40
LOADING = "script|img|iframe|source|video|link"
LOADED = re.compile(rf"""<(?:{LOADING})\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")
IMPORTED = re.compile(r"""(?:@import\s+|url\()\s*["']?((?:https?:)?//[^"')\s]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A proxy that does not exist stops whatever would use a network."""
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "WARNING" not in ran.stderr, ran.stderr
    return folder


@pytest.mark.slow
def test_the_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages, sheets = list(site.rglob("*.html")), list(site.rglob("*.css"))
    assert len(pages) > 25
    loaded = {(page.name, url) for page in pages for url in LOADED.findall(page.read_text()) if "canonical" not in url}
    loaded |= {(sheet.name, url) for sheet in sheets for url in IMPORTED.findall(sheet.read_text())}
    assert loaded == set()
    assert LOADED.search('<script src="https://cdn.example.org/x.js">')  # otherwise nothing would be found
    assert IMPORTED.search('@import url("https://fonts.example.org/css")')


@pytest.mark.slow
def test_the_references_hold_every_command_and_every_public_name(site: Path) -> None:
    commands, names = (site / "command-line-reference.html").read_text(), (site / "api-reference.html").read_text()
    for command in COMMANDS:
        assert f"graphforget {command.__name__.replace('_', '-')}" in commands
    assert "--epsilon" in commands
    for name in vars(gf)["__all__"]:
        assert f'id="gf{name.lower()}"' in names, name
    assert "The trained module, called as" in names  # an argument of gf.adopt, from its docstring


@pytest.mark.slow
def test_links_from_generated_pages_lead_to_pages_of_the_site(site: Path) -> None:
    for page in ("index.html", "contributing.html", "changelog.html", "security.html"):
        text = (site / page).read_text()
        for target in re.findall(r'href="([^"#:?]+\.html)', text):
            assert (site / target).is_file(), (page, target)


def test_the_menu_has_the_chapters_in_their_order() -> None:
    menu = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    assert re.findall(r"^  - ([^:]+):", menu, re.MULTILINE) == ["Home", *ORDER]


def test_the_first_screen_of_the_readme_says_what_it_is_how_to_install_and_what_comes_out() -> None:
    first = "\n".join((ROOT / "README.md").read_text().splitlines()[:MOST_LINES_OF_THE_FIRST_SCREEN])
    for part in (
        "graph neural network",
        "make demo",
        "gf.unlearn(",
        "certified",
        "docs/terminal.svg",
        "Getting started",
    ):
        assert part in first


def test_the_recording_and_the_figures_are_drawings_that_load_nothing() -> None:
    for name in ("terminal.svg", "guarantees.svg"):
        text = (ROOT / "docs" / name).read_text()
        assert "<script" not in text
        assert not re.search(r'(?:href|src)="(?!#)', text)
    recording = (ROOT / "docs" / "terminal.svg").read_text()
    for command in ("train", "unlearn", "verify"):
        assert f"$ graphforget {command} " in recording
