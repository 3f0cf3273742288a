"""The file, read with the standard library's parser; tests/report/test_browser.py opens it."""

import base64
import json
import re
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from bayesdg.errors import UsageError
from bayesdg.report.build import build_page
from bayesdg.report.page import Page, to_html, write_page
from bayesdg.report.prepare import prepared
from bayesdg.report.runs import read_run
from ready_runs import ODD_NAMES, ready_run


class Reader(HTMLParser):
    """Elements with their attributes, and the text in each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("runs")
    folders = [ready_run(out, method, classes=ODD_NAMES) for method in ("bil", "erm")]
    return to_html(build_page([prepared(read_run(folder), compute=False) for folder in folders]))


def test_nothing_is_fetched_and_nothing_foreign_is_run(page: str) -> None:
    read = Reader(page)
    for _, attributes in read.elements:
        for name in ("src", "href", "xlink:href", "action", "data", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), value
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    assert "url(http" not in page
    assert [s.get("type") for s in read.all("script")] == ["application/json", None]


def test_the_policy_allows_just_the_style_and_the_script_that_are_there(page: str) -> None:
    (policy,) = [
        m["content"]
        for m in Reader(page).all("meta")
        if m.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert "unsafe" not in policy
    assert "connect-src" not in rules
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


def test_names_of_classes_are_text(page: str) -> None:
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    (stored,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    data = json.loads(stored)
    assert next(iter(data["maps"].values()))["classes"] == list(ODD_NAMES)
    shown = " ".join(text for texts in Reader(page).texts.values() for text in texts)
    for name in ODD_NAMES:
        assert name in shown


def test_headings_go_down_one_level_at_a_time_and_everything_has_a_name(page: str) -> None:
    read = Reader(page)
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert read.all("html")[0]["lang"] == "en"
    for image in read.all("img"):
        assert "alt" in image
    drawn = [a for a in read.all("svg") if "aria-hidden" not in a]
    assert drawn
    assert all(svg["aria-label"] for svg in drawn)
    for scrolling in (a for a in read.all("div") if a.get("class") == "scroll"):
        assert scrolling["tabindex"] == "0"
        assert scrolling["aria-label"]


def test_no_identifier_is_there_twice_and_every_reference_leads_somewhere(page: str) -> None:
    found = [a["id"] for _, a in Reader(page).elements if a.get("id")]
    assert len(found) == len(set(found))
    wanted = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page))
    assert wanted <= set(found)


def test_figures_take_the_colour_of_the_page(page: str) -> None:
    """What is black in a file is the colour of the text here, on white and on black."""
    drawn = re.findall(r'<svg class="figure".*?</svg>', page, re.DOTALL)
    assert len(drawn) >= 10
    for svg in drawn:
        assert not re.search(r'"#0{6}"|"#f{6}"|"(black|white)"', svg, re.IGNORECASE)


def test_a_map_says_of_each_point_what_was_predicted(page: str, tmp_path: Path) -> None:
    run = read_run(ready_run(tmp_path, classes=ODD_NAMES))
    (stored,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    data = json.loads(stored)
    shown = data["maps"]["grid-all-0"]  # erm comes first in the table of methods
    assert run.features is not None
    assert len(shown["images"]) == len(run.features) == 120
    sizes = {name: len(values) for name, values in shown.items() if name != "classes"}
    assert set(sizes.values()) == {120}
    right = [
        data["images"][i]["label"] == answer
        for i, answer in zip(shown["images"], shown["answer"], strict=True)
    ]
    assert 0.5 < sum(right) / len(right) < 1
    # Both runs show the same images, each stored once.
    assert shown["images"] == data["maps"]["grid-all-1"]["images"]


def test_a_live_page_may_ask_its_own_server_and_nobody_else() -> None:
    page = to_html(Page("t", "", [], 0), live="tag")
    assert "connect-src &#39;self&#39;" in page
    assert page.count("sha256-") == 3
    assert 'data-tag="tag"' in page


def test_a_name_that_is_no_unicode_is_shown_with_its_bytes() -> None:
    assert "caf\\udce9" in to_html(Page("caf\udce9", "", [], 0))


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written to"):
        write_page(Page("t", "", [], 0), tmp_path / "file" / "report.html")
