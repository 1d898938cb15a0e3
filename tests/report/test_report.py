"""The report: a whole story is on the page, no text becomes markup, nothing is fetched; figures say their numbers."""

from __future__ import annotations

import dataclasses
import functools
import html
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from markupsafe import Markup

from graphforget.errors import InputError
from graphforget.report.figures import Role, accuracy_figure, footprint_figure, residual_figure
from graphforget.report.page import CheckRow, Picture, ReportContent, page, write

PLACE = np.random.default_rng(0).normal(size=(12, 2))
EDGES = np.array([[0, 1, 2, 3, 4, 1], [1, 2, 3, 4, 5, 0]])
ROLE_OF: list[Role] = ["removed", "changed", "changed", "affected", "affected", "affected", "affected"]
ROLE_OF += ["untouched"] * 5
LABELS: dict[Role, str] = {
    "removed": "goes (1)",
    "changed": "loses something (2)",
    "affected": "may change (4)",
    "untouched": "stays as it is (5)",
}
FIGURES: dict[str, Callable[[], Markup]] = {
    "footprint": lambda: footprint_figure(PLACE, EDGES, ROLE_OF, LABELS),
    "no edges": lambda: footprint_figure(PLACE, EDGES[:, :0], ROLE_OF, LABELS),
    "no nodes": lambda: footprint_figure(PLACE[:0], EDGES[:, :0], [], LABELS),
    "residuals": lambda: residual_figure([0.3, 2e-3, 4.12e-8], 1e-6),
    "one residual": lambda: residual_figure([0.3], 1e-6),
    "zeros": lambda: residual_figure([0.3, 0.0, 0.0], 1e-6),
    "only zeros": lambda: residual_figure([0.0], 0.0),
    "above tolerance": lambda: residual_figure([0.3, 0.25], 1e-6),
    "accuracy": lambda: accuracy_figure({"before": 0.9731, "after": 1.0, "guessing": 0.0}),
}


@functools.cache
def drawn(name: str) -> Markup:
    return FIGURES[name]()


def words(svg: str) -> list[str]:
    """The text of a figure, one entry for each element; fails on what is not XML."""
    return [e.text for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("}text") and e.text]


def story(text: Callable[[str], str] = lambda name: f"the {name}") -> ReportContent:
    """A story in which every text tells its own name, put through `text`."""
    return ReportContent(
        title=text("title"),
        audience=text("audience"),
        made=text("time"),
        level=text("level"),
        statement=text("statement"),
        facts=((text("fact name"), text("fact value")),),
        requests=(text("request"),),
        pictures=(
            Picture(text("first picture"), drawn("footprint"), text("first caption")),
            Picture(text("second picture"), drawn("residuals"), text("second caption")),
            Picture(text("third picture"), drawn("accuracy"), text("third caption")),
        ),
        guaranteed=(text("guarantee"),),
        proven=True,
        not_guaranteed=(text("gap"),),
        checks=(CheckRow(text("check"), True, text("check detail")), CheckRow(text("failure"), False, text("reason"))),
        unchecked=(text("open check"),),
        planted=(CheckRow(text("plant"), True, text("catch")), CheckRow(text("missed plant"), False, text("miss"))),
        conditions=((text("assumption"), text("measured"), text("constant"), text("verdict")),),
        notes=(text("note"),),
        certificate=text("certificate"),
        composed=(text("composition"),),
    )


def texts(value: Any) -> list[str]:
    """Every text in a story but the figures."""
    if isinstance(value, Markup):
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, tuple):
        return [text for part in value for text in texts(part)]
    if dataclasses.is_dataclass(value):
        return [text for field in dataclasses.fields(value) for text in texts(getattr(value, field.name))]
    return []


EMPTY: dict[str, Any] = {
    f.name: "" if f.name == "certificate" else () for f in dataclasses.fields(ReportContent)[5:] if f.name != "proven"
}
HEADINGS = {
    "facts": "In numbers",
    "requests": "What was asked for",
    "pictures": "In pictures",
    "guaranteed": "What is guaranteed",
    "not_guaranteed": "What is not guaranteed",
    "checks": "Verification",
    "unchecked": "Not checked",
    "planted": "Planted failures",
    "conditions": "Conditions",
    "notes": "Notes",
    "certificate": "Certificate",
    "composed": "All releases together",
}


# -- the page ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_everything_in_a_story_is_on_the_page() -> None:
    document = page(story())
    assert len(texts(story())) == 32
    for text in texts(story()):
        assert text in document
    for picture in story().pictures:
        assert picture.svg in document


def test_markup_in_any_text_is_escaped() -> None:
    document = page(story(lambda name: f"<script>{name}</script>\"'><img src=x onerror=y>{{{{ 7 * 7 }}}}"))
    assert "<script" not in document
    assert "<img" not in document
    assert "{{ 7 * 7 }}" in document
    for text in texts(story()):
        assert f"&lt;script&gt;{text.removeprefix('the ')}&lt;/script&gt;&#34;&#39;&gt;&lt;img" in document


def test_a_picture_that_no_figure_made_is_text() -> None:
    foreign: Any = "<svg onload=alert(1)></svg>"
    document = page(dataclasses.replace(story(), pictures=(Picture("title", foreign, "caption"),)))
    assert "<svg" not in document
    assert html.escape(foreign) in document


def test_nothing_is_fetched_and_nothing_runs() -> None:
    heavy = footprint_figure(np.tile(PLACE, (600, 1)), EDGES, ROLE_OF * 600, LABELS)
    document = page(dataclasses.replace(story(), pictures=(*story().pictures, Picture("many nodes", heavy, ""))))
    assert "data:image/png" in heavy
    for target in re.findall(r"(?:src|href|data|action)\s*=\s*[\"']?([^\"'\s>]*)|url\(([^)]*)\)", document):
        assert "".join(target).startswith(("#", "data:image/png;base64,")), target
    without_names = re.sub(r'xmlns(:xlink)?="[^"]*"', "", document)
    assert "http:" not in without_names
    assert "https:" not in without_names
    assert not re.search(r"<script|<link|<iframe|<object|@import|\son\w+\s*=", document)
    assert "default-src 'none'" in document


@pytest.mark.parametrize("left_out", HEADINGS)
def test_empty_parts_are_left_out(left_out: str) -> None:
    document = page(dataclasses.replace(story(), **{left_out: EMPTY[left_out]}))
    headings = re.findall(r"<h2>(.*?)</h2>", document)
    assert sorted(headings) == sorted(set(HEADINGS.values()) - {HEADINGS[left_out]})


def test_a_page_of_nothing_but_a_claim() -> None:
    document = page(dataclasses.replace(story(), **EMPTY))
    assert "the statement" in document
    assert "the level" in document
    assert not re.search("<(h2|ul|table|figure|details)", document)
    assert "did not pass" not in document


def test_a_claim_that_comes_to_nothing_is_not_told_as_a_guarantee() -> None:
    proven, nothing = page(story()), page(dataclasses.replace(story(), proven=False))
    assert '<h2>What is guaranteed</h2>\n<ul class="guaranteed">\n<li>the guarantee</li>' in proven
    assert '<h2>Nothing is guaranteed</h2>\n<ul class="open">\n<li>the guarantee</li>' in nothing
    assert 'class="guaranteed"' not in nothing


def test_what_went_wrong_stands_at_the_top() -> None:
    good = dataclasses.replace(story(), checks=story().checks[:1], planted=story().planted[:1])
    assert "did not pass" not in page(good)
    for part, name in (("checks", "Failed: the failure."), ("planted", "Planted and not caught: the missed plant.")):
        document = page(dataclasses.replace(good, **{part: getattr(story(), part)}))
        top = document[: document.index("<main>")]
        assert "did not pass" in top
        assert name in top
    both = page(story())
    assert "Failed: the failure. Planted and not caught" in both
    assert "1 of 2 passed." in both
    assert "1 of 2 caught." in both


def test_no_id_is_there_twice() -> None:
    other = footprint_figure(PLACE + 1, EDGES[:, :3], ROLE_OF, LABELS)
    document = page(dataclasses.replace(story(), pictures=(*story().pictures, Picture("other", other, ""))))
    ids = Counter(re.findall(r'\sid="([^"]*)"', document))
    assert ids
    assert max(ids.values()) == 1
    assert set(re.findall(r'(?:xlink:href="|url\()#([^")]*)', document)) == set(ids)


# -- writing it --------------------------------------------------------------------------------------------------


def test_written_as_made_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write(path, story(lambda name: f"{name} äöü"))
    assert path.read_text(encoding="utf-8") == page(story(lambda name: f"{name} äöü"))
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o600  # for operators and auditors
    write(str(path), story(lambda name: f"{name} \udcff"))  # as in a file name that is not UTF-8
    assert "\\udcff" in path.read_text(encoding="utf-8")


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "missing" / "report.html", tmp_path / "file" / "report.html", tmp_path / "folder"):
        with pytest.raises(InputError, match=r"^the report cannot be written to [^\n]*$"):
            write(path, story())

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(InputError, match="^the report cannot be written to .*file: No space left on device$"):
        write(tmp_path / "file", story())
    assert (tmp_path / "file").read_text() == "old"
    assert {p.name for p in tmp_path.rglob("*")} == {"folder", "file"}


# -- the figures -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_xml_with_text_and_always_the_same(name: str) -> None:
    settings = dict(matplotlib.rcParams)
    svg = FIGURES[name]()
    with matplotlib.rc_context({"font.size": 20, "svg.fonttype": "path", "axes.facecolor": "black"}):
        assert FIGURES[name]() == svg
    assert dict(matplotlib.rcParams) == settings
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert words(svg)
    assert "sans-serif" in svg
    assert not re.search("<style|<metadata|<!DOCTYPE|<[?]xml", svg)


@pytest.mark.slow
def test_pyplot_is_not_touched() -> None:
    draw = "from graphforget.report.figures import residual_figure; residual_figure([0.1], 1.0)"
    code = f"import sys; {draw}; print([name in sys.modules for name in ('matplotlib', 'matplotlib.pyplot')])"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == "[True, False]\n"


@pytest.mark.slow
def test_the_legend_says_what_it_was_given() -> None:
    assert words(FIGURES["footprint"]()) == list(LABELS.values())
    some: dict[Role, str] = {"removed": "$10 & <b>"}
    assert words(footprint_figure(PLACE, EDGES, ROLE_OF, some)) == ["$10 & <b>"]
    assert words(FIGURES["no nodes"]()) == list(LABELS.values())


def test_roles_differ_in_more_than_colour() -> None:
    svg = footprint_figure(PLACE, EDGES, ROLE_OF, {})
    shapes = Counter(re.findall(r'<use [^>]*fill: (#\w+)[^>]*xlink:href="#([^"]*)"', svg))
    assert sorted(shapes.values()) == [1, 2, 4, 5]
    assert len({colour for colour, _ in shapes}) == 4


def test_an_edge_is_drawn_once_whichever_way_it_is_given() -> None:
    assert footprint_figure(PLACE, EDGES, ROLE_OF, LABELS) == footprint_figure(PLACE, EDGES[::-1, :5], ROLE_OF, LABELS)


@pytest.mark.parametrize(
    ("residuals", "tolerance", "labels"),
    [
        ([0.3, 2e-3, 4.12e-8], 1.5e-6, ["4.12e-08, within tolerance", "tolerance 1.5e-06"]),
        ([0.3], 1e-6, ["0.3, above tolerance", "tolerance 1e-06"]),
        ([0.3, 0.0], 1e-6, ["0, within tolerance", "tolerance 1e-06"]),
        ([0.0], 0.0, ["0, within tolerance", "tolerance 0"]),
        ([1e-6], 1e-6, ["1e-06, within tolerance", "tolerance 1e-06"]),
    ],
)
def test_the_last_residual_and_the_tolerance_are_written(
    residuals: list[float], tolerance: float, labels: list[str]
) -> None:
    assert set(labels) <= set(words(residual_figure(residuals, tolerance)))


@pytest.mark.slow
def test_steps_are_whole_numbers() -> None:
    for count in (1, 2, 3, 30):
        ticks = {word for word in words(residual_figure([0.1] * count, 1e-3)) if re.fullmatch(r"\D?[\d.]+", word)}
        assert "0" in ticks
        assert all(0 <= int(tick) < count for tick in ticks)


def test_bars_start_at_0_and_say_their_numbers() -> None:
    labels = words(FIGURES["accuracy"]())
    assert {"before", "97.3 %", "after", "100.0 %", "guessing", "0.0 %"} <= set(labels)
    assert {"0", "100"} <= set(labels)
