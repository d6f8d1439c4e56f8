"""The status page in a real browser."""

import importlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import _binary

if TYPE_CHECKING:
    from tests.conftest import Demo

QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@pytest.fixture
def browser() -> Iterator[Any]:
    """Chromium of the system; a skip where it or its driver is missing, unless servers are required."""
    program = _binary("chromium")
    try:
        driver = importlib.import_module("playwright.sync_api")
    except ModuleNotFoundError:
        if os.environ.get("REQUIRE_SERVERS") == "1":
            raise
        pytest.skip("playwright is not installed: pip install '.[ops]'")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=QUIET)
        yield browser
        browser.close()


@pytest.mark.xdist_group("prometheus")  # where the demo runs already
def test_the_status_page_opens_without_complaint_and_shows_every_target(browser: Any, demo: "Demo") -> None:
    complaints: list[str] = []
    requests: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{demo.url}/")
    targets = page.request.get(f"{demo.url}/api/v1/targets").json()["targets"]
    shown = page.locator("tbody tr").all_text_contents()
    assert len(shown) == len(targets) > 0
    assert all(target["deployment_id"] in row for target, row in zip(targets, shown, strict=True))
    assert [url for url in requests if not url.startswith((demo.url, "data:"))] == []
    assert complaints == []
    page.get_by_role("link", name="metrics").click()
    assert "baseten_exporter_build_info" in page.content()
