"""Links of the documents: files and headings exist, and addresses outside have the form of one. No network is used."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from document_blocks import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^()\s]*(?:\([^()\s]*\))?[^()\s]*)\)")
ADDRESS = re.compile(r"\bhttps?://[^\s)>`\"'\]]+", re.IGNORECASE)
EXAMPLES = ("127.0.0.1", "localhost")  # hosts that are no link, with any port
CODE = re.compile(r"^```.*?^```|`[^`]*`", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    return CODE.sub("", page.read_text())


def targets_of(page: Path) -> list[str]:
    """The targets of links and pictures of a page."""
    return LINK.findall(prose(page))


def headings_of(page: Path) -> set[str]:
    """The anchors of a page, as GitHub and the site make them from headings."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def addresses() -> dict[str, list[str]]:
    """The addresses outside that pages name, each with its pages."""
    listed: dict[str, list[str]] = {}
    for page in PAGES:
        for address in ADDRESS.findall(page.read_text()):
            if urlsplit(address).hostname not in EXAMPLES:
                listed.setdefault(address.rstrip(".,;:"), []).append(page.name)
    return listed


def faults_of(address: str) -> list[str]:
    """What is wrong with the form of an address."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    checks = {
        "not https": parts.scheme == "https",
        "no host": re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", host) is not None,
        "a name or password": parts.username is None and parts.password is None,
        "an unusual character": re.fullmatch(r"[\w.~:/?#@!$&*+,;=%-]+", address, re.ASCII) is not None,
    }
    return [fault for fault, good in checks.items() if not good]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in targets_of(page):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, heading = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        assert place.exists(), f"{page.name}: {target}"
        assert place.is_relative_to(ROOT), f"{page.name}: {target}"
        assert not heading or heading in headings_of(place), f"{page.name}: {target}"


def test_there_are_links_to_check() -> None:
    targets = [target for page in PAGES for target in targets_of(page)]
    assert len(targets) > 150
    assert sum("#" in target for target in targets) > 30


def test_addresses_outside_have_the_form_of_one() -> None:
    """`pytest -s tests/docs/test_document_links.py` lists them, for somebody who wants to open each."""
    listed = addresses()
    print("\n".join(f"{address} ({', '.join(pages)})" for address, pages in listed.items()))
    assert listed
    assert {address: faults for address in listed if (faults := faults_of(address))} == {}


@pytest.mark.parametrize(
    "address",
    ["http://example.org", "https://example", "https://me:secret@example.org/x", "https://example.org/a|b", "https://"],
)
def test_an_address_without_the_form_of_one_is_found(address: str) -> None:
    assert faults_of(address)
    assert faults_of("https://example.org/a_page.html?x=1#part") == []
