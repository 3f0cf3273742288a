"""The page in a real browser, from the file: what is seen, pointed at and reached by keyboard."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bayesdg.report.build import build_page
from bayesdg.report.page import write_page
from bayesdg.report.prepare import prepared
from bayesdg.report.runs import read_run
from ready_runs import ODD_NAMES, ready_run

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BROWSER is None or DRIVER is None,
        reason="no chromium with chromedriver; make test-all or a package manager installs them",
    ),
]
QUIET = (
    "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    folders = [ready_run(out, method, classes=ODD_NAMES) for method in ("bil", "erm")]
    runs = [prepared(read_run(folder), compute=False) for folder in folders]
    write_page(build_page(runs), out / "report.html")
    return out / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    profile = tmp_path_factory.mktemp("profile")
    root = ("--no-sandbox",) if os.getuid() == 0 else ()
    for argument in (*QUIET, *root, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    yield driver
    driver.quit()


def open_page(browser: Any, page: Path, *, width: int = 1200, scheme: str = "light") -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(page.as_uri())


def test_it_opens_from_a_file_without_an_error_and_asks_nobody(browser: Any, page: Path) -> None:
    open_page(browser, page)
    assert browser.get_log("browser") == []
    messages = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    asked = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    foreign = [url for url in asked if url != page.as_uri() and not url.startswith("data:")]
    assert page.as_uri() in asked
    assert foreign == []


def test_a_class_may_be_called_anything(browser: Any, page: Path) -> None:
    open_page(browser, page)
    # As a reader copies it: what is hidden from the eye is not there.
    text = browser.execute_script("return document.body.innerText")
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('svg.figure text')].map(t => t.textContent).join(' ')"
    )
    for name in ODD_NAMES:
        assert name in text
        assert name[:8] in drawn
    assert browser.execute_script("return document.scripts.length") == 2


def test_pointing_at_a_point_shows_its_picture(browser: Any, page: Path) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    open_page(browser, page)
    card = browser.find_element(By.ID, "card")
    assert not card.is_displayed()
    point = browser.find_elements(By.CSS_SELECTOR, "#grid-all ~ .grid .map use")[7]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", point)
    ActionChains(browser).move_to_element(point).perform()
    assert card.is_displayed()
    picture = card.find_element(By.TAG_NAME, "img")
    assert browser.execute_script("return arguments[0].naturalWidth", picture) == 64
    assert any(name in card.text for name in ODD_NAMES)
    assert "answer: " in card.text
    assert "uncertainty " in card.text
    heading = browser.find_element(By.TAG_NAME, "h2")
    ActionChains(browser).move_to_element(heading).perform()
    assert not card.is_displayed()


def test_the_keyboard_reaches_every_map_and_walks_on_it(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    open_page(browser, page)
    active = "return document.activeElement"
    body = browser.find_element(By.TAG_NAME, "body")
    reached = set()
    for _ in range(80):
        body.send_keys(Keys.TAB)
        inside = browser.execute_script(
            "return document.activeElement.closest('.map svg')?.dataset.map ?? null"
        )
        reached |= {inside} - {None}
    maps = browser.execute_script(
        "return [...document.querySelectorAll('.map svg')].map(svg => svg.dataset.map)"
    )
    assert reached == set(maps)
    point = browser.find_element(By.CSS_SELECTOR, ".map use[tabindex='0']")
    browser.execute_script("arguments[0].focus()", point)
    card = browser.find_element(By.ID, "card")
    assert card.is_displayed()
    before = browser.execute_script(active)
    label = before.get_attribute("aria-label")
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_LEFT, Keys.ARROW_UP, Keys.ARROW_DOWN):
        browser.execute_script(active).send_keys(key)
    after = browser.execute_script(active)
    assert after != before
    assert after.get_attribute("aria-label") != label
    assert "answer: " in after.get_attribute("aria-label")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#grid-all ~ .grid use[tabindex='0']")) >= 1
    after.send_keys(Keys.ESCAPE)
    assert not card.is_displayed()


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen_and_can_be_read(
    browser: Any, page: Path, width: int, scheme: str
) -> None:
    """Nothing is wider than the screen; text and ground differ by 4.5 to 1 (WCAG AA)."""
    open_page(browser, page, width=width, scheme=scheme)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    colours = browser.execute_script(
        """
        const colour = (found, what) => getComputedStyle(document.querySelector(found))[what];
        return ["body", ".faint", "a[href]", ".facts dt", "svg.figure text"].map((found) => [
          found, colour(found, found.startsWith("svg") ? "fill" : "color"),
          colour("body", "backgroundColor"),
        ]);
        """
    )
    for found, ink, paper in colours:
        assert _contrast(ink, paper) >= 4.5, (found, ink, paper)
    dark = _luminance(colours[0][2]) < 0.1
    assert dark == (scheme == "dark")


def test_print_shows_no_card_and_black_on_white(browser: Any, page: Path) -> None:
    open_page(browser, page, scheme="dark")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    ink, nav = browser.execute_script(
        "return [getComputedStyle(document.body).color,"
        " getComputedStyle(document.querySelector('nav')).display]"
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert _luminance(ink) == 0
    assert nav == "none"


def test_a_watched_page_renews_itself(browser: Any, tmp_path: Path) -> None:
    from threading import Thread

    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    from bayesdg.report.watch import server

    folder = ready_run(tmp_path, evaluated=False)
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "manifest.json").unlink()
    (folder / "records.jsonl").write_text("".join(lines[:5]))
    with server([tmp_path], 0) as listening:
        thread = Thread(target=listening.serve_forever)
        thread.start()
        try:
            browser.get_log("browser")
            browser.get(f"http://127.0.0.1:{listening.server_port}/")
            assert "step 20 of 100" in browser.find_element(By.TAG_NAME, "main").text
            WebDriverWait(browser, 30).until(
                lambda b: b.execute_script("return performance.getEntriesByType('resource').length")
            )
            browser.execute_script("document.querySelector('details').open = true")
            (folder / "records.jsonl").write_text("".join(lines[:13]))
            WebDriverWait(browser, 30).until(
                lambda b: "step 60 of 100" in b.find_element(By.TAG_NAME, "main").text
            )
            assert browser.execute_script("return document.querySelector('details').open")
            assert browser.get_log("browser") == []
        finally:
            listening.shutdown()
            thread.join()


def _luminance(colour: str) -> float:
    """Relative luminance of rgb(r, g, b), by WCAG 2."""
    numbers = colour[colour.index("(") + 1 : -1].replace(",", " ").split()
    parts = [float(number) / 255 for number in numbers[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted([_luminance(one), _luminance(other)])
    return (high + 0.05) / (low + 0.05)
