"""What `make serve` starts, as a process, and its page in a real browser: at the sizes of a desk and of a phone.

`GRAPHFORGET_SCREENSHOTS=docs/service pytest tests/service/test_browser.py` writes the pictures of docs/service.md.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from selenium.common.exceptions import WebDriverException

import graphforget as gf
from graphforget.certificates.chain import Entry
from graphforget.certificates.ledger import Ledger
from service_cases import request_body, running_trial

ROOT = Path(__file__).parents[2]
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
DESK, PHONE = (1100, 900), (390, 844)
PICTURES = ("new-desk", "request-desk", "request-phone", "queue-desk", "certificate-desk", "models-desk")
TALLEST = 1500  # pixels of a picture
CONTRAST = """
const channel = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); };
const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
const parse = t => t.match(/[\\d.]+/g).map(Number);
const low = [];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || element.getClientRects().length === 0) continue;
  let at = element, ground = [255, 255, 255];
  while (at) { const c = parse(getComputedStyle(at).backgroundColor);
    if (c.length === 3 || c[3] > 0) { ground = c; break; } at = at.parentElement; }
  const ink = light(parse(getComputedStyle(element).color)), paper = light(ground);
  const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  if (ratio < 4.5) low.push(element.tagName + ": " + element.textContent.trim().slice(0, 40) + " " + ratio);
}
return low;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if CHROMIUM is None or DRIVER is None:
        message = "chromium and chromedriver are not installed (Debian: chromium, chromium-driver)"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the service."""
    return tmp_path_factory.mktemp("browser") / "service"


@pytest.fixture(scope="module")
def place(home: Path) -> Iterator[tuple[str, str]]:
    """The address of a running service on the patients graph, and a token."""
    log = home.with_name("printed.txt")
    with running_trial(home, log) as (address, token):
        yield address, token
    assert "patient-" not in log.read_text()


def until(condition: Callable[[], Any], *, seconds: float = 40) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if result := condition():
                return result
        except WebDriverException:  # the page is being loaded
            pass
        time.sleep(0.3)
    raise AssertionError("the page did not change in time")


class Page:
    def __init__(self, driver: Any, address: str) -> None:
        self.driver, self.address = driver, address

    def open(self, path: str) -> None:
        self.driver.get(self.address + path)

    @property
    def text(self) -> str:
        return str(self.driver.find_element("tag name", "body").text)

    def click(self, words: str) -> None:
        self.driver.find_element(
            "xpath", f"//button[normalize-space()='{words}'] | //a[normalize-space()='{words}']"
        ).click()

    def check(self, name: str) -> None:
        """The page fits a phone, its contrast is AA; kept as a picture if a folder for pictures is given."""
        for size, label in ((PHONE, "phone"), (DESK, "desk")):
            self.driver.set_window_size(*size)
            wide = self.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 1, f"{name} is {wide} pixels too wide for a {label}"
            folder = os.environ.get("GRAPHFORGET_SCREENSHOTS")
            if folder and f"{name}-{label}" in PICTURES:
                Path(folder).mkdir(parents=True, exist_ok=True)
                height = self.driver.execute_script("return document.documentElement.scrollHeight")
                self.driver.set_window_size(size[0], min(height, TALLEST) + 150)
                picture = Image.open(io.BytesIO(self.driver.get_screenshot_as_png()))
                picture.convert("RGB").quantize(64).save(Path(folder) / f"{name}-{label}.png", optimize=True)
        self.driver.execute_script("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        for size, label in ((PHONE, "phone"), (DESK, "desk")):
            self.driver.set_window_size(*size)
            wide = self.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 1, f"{name} with everything opened is {wide} pixels too wide for a {label}"
        assert self.driver.execute_script(CONTRAST) == []
        unnamed = self.driver.execute_script(
            "return [...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
            ".filter(f => !f.labels.length).map(f => f.name)"
        )
        assert unnamed == [], f"fields without a label on {name}"

    def sign_in(self, token: str) -> None:
        self.open("/page/queue")
        if "Sign in" in self.driver.title:
            self.driver.find_element("id", "token").send_keys(token + "\n")
            until(lambda: "Requests" in self.driver.title)

    def tabs(self, most: int = 40) -> list[str]:
        """The names or the words of what the Tab key reaches from the top of the page, in order."""
        from selenium.webdriver import ActionChains, Keys

        reached: list[str] = []
        for _ in range(most):
            ActionChains(self.driver).send_keys(Keys.TAB).perform()
            words, outline = self.driver.execute_script(
                "const at = document.activeElement;"
                "return [at.name || at.innerText, at === document.body ? '' : getComputedStyle(at).outlineStyle]"
            )
            if outline == "" or words in reached[:1]:  # the end of the page
                break
            assert outline != "none", f"nobody sees that {words!r} has the keyboard"
            reached.append(str(words))
        return reached


@pytest.mark.slow
def test_a_person_submits_approves_and_finds_the_certificate(browser: Any, place: tuple[str, str]) -> None:
    page = Page(browser, place[0])
    page.open("/")
    page.check("sign-in")
    field = browser.switch_to.active_element  # the keyboard is in the only field
    field.send_keys(place[1] + "\n")
    until(lambda: "Requests" in browser.title)
    page.open("/page/new")
    page.check("new")
    browser.find_element("id", "subject").send_keys("patient-0017")
    page.click("Submit")
    until(lambda: "Request" in browser.title)
    until(lambda: browser.refresh() is None and "Waits for approval" in page.text)
    until(lambda: browser.execute_script("return document.querySelector('img.picture').naturalWidth > 100"))
    page.check("request")
    assert "patient-0017" in page.text
    page.open("/page/queue")
    page.check("queue")
    browser.find_element("css selector", "table a").click()
    browser.find_element("id", "approve").send_keys("\n")  # by keyboard
    until(lambda: "in the round of" in page.text)
    until(lambda: browser.refresh() is None and "is forgotten" in page.text)
    assert "patient-0017" not in page.text
    page.check("completed")
    browser.find_element("partial link text", "Certificate of the round").click()
    until(lambda: "Certificate" in browser.title)
    page.check("certificate")
    assert "certified" in page.text
    browser.find_elements("xpath", "//form[contains(@action, 'purges')]/button")[-1].click()
    until(lambda: "purged by trial" in page.text)
    for name in ("models", "ledger", "health"):
        page.open(f"/page/{name}")
        page.check(name)
    page.open("/docs")
    page.check("interface")
    for error in browser.get_log("browser"):
        assert error["level"] != "SEVERE", error


def test_make_serve_starts_this_service() -> None:
    assert re.search(r"^serve: .*\n\t\$\(BIN\)/graphforget serve trial$", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.slow
def test_a_newcomer_signs_in_with_the_printed_token_and_goes_to_a_certificate(
    place: tuple[str, str], home: Path
) -> None:
    """Without a browser."""
    address, token = place
    with httpx.Client(base_url=address, trust_env=False, follow_redirects=True, timeout=30) as page:
        assert page.get("/").url.path == "/page/sign-in"
        wrong = page.post("/page/sign-in", data={"token": token[:-1]})
        assert (wrong.status_code, page.get("/page/queue").url.path) == (401, "/page/sign-in")
        queue = page.post("/page/sign-in", data={"token": token})
        assert (queue.status_code, queue.url.path) == (200, "/page/queue")
        assert "<h1>Requests</h1>" in queue.text
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{address}/v2", headers=headers, trust_env=False, timeout=30) as client:
        submitted = client.post("/requests", json=request_body("patient-0033"))
        assert submitted.status_code == 201
        at = f"/requests/{submitted.json()['subject_request_id']}"

        def state() -> str:
            return str(client.get(at).json()["extensions"]["graphforget"]["state"])

        until(lambda: state() == "planned")
        assert client.post(f"{at}/decision", json={"decision": "approve"}).status_code == 200
        until(lambda: state() == "completed")  # a round takes 15 seconds
        (answer,) = client.get(f"{at}/results").json()["certificates"]
    run = home / "runs" / "patients"
    assert gf.Certificate.from_dict(answer["certificate"]).digest in {one.certificate_digest for one in entries(run)}
    gf.verify_run(run, key=gf.public_key(home / "signing.key.pub"))


def entries(run: Path) -> list[Entry]:
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        return list(ledger.entries())


@pytest.mark.slow
def test_all_controls_are_reached_by_the_tab_key(browser: Any, place: tuple[str, str]) -> None:
    page = Page(browser, place[0])
    page.sign_in(place[1])
    page.open("/page/new")
    assert {"subject", "what", "names", "model", "dry_run", "Submit", "Sign out"} <= set(page.tabs())


@pytest.mark.slow
def test_a_request_is_approved_and_another_refused_by_the_keyboard_alone(browser: Any, place: tuple[str, str]) -> None:
    from selenium.webdriver import ActionChains, Keys

    page = Page(browser, place[0])
    page.sign_in(place[1])
    for subject, end in (("patient-0101", "Approved"), ("patient-0102", "a mistake")):
        page.open("/page/new")
        browser.find_element("id", "subject").send_keys(subject + "\n")
        until(lambda: browser.refresh() is None and "Waits for approval" in page.text)
        order = page.tabs()
        steps = ["Skip to the content", "Numbers", "What is not covered", "Approve", "reason", "Refuse"]
        places = [order.index(words) for words in [*steps, "Cancel this request"]]
        assert places == sorted(places)
        assert places[3:6] == [places[3], places[3] + 1, places[3] + 2]
        browser.refresh()
        actions = ActionChains(browser).send_keys(Keys.TAB * (places[3] + 1))
        typed = Keys.ENTER if end == "Approved" else f"{Keys.TAB}{end}{Keys.TAB}{Keys.ENTER}"
        actions.send_keys(typed).perform()
        until(lambda: end in page.text)  # noqa: B023
