"""The status page in a real browser."""

import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry

from exporter.model import LoopsOptions, ModelOptions, Snapshot, Target
from exporter.store import Store
from exporter.web.pages import Pages
from exporter.web.routes import Parts, application
from exporter.web.server import Server, listen
from exporter.web.status import EndpointStatus, WorkspaceStatus, moment
from tests.conftest import Clock, _binary

if TYPE_CHECKING:
    from tests.conftest import Demo

QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
SCREENSHOTS = Path(__file__).parent.parent / "build" / "screenshots"
WIDTHS = {"phone": 375, "tablet": 800, "desk": 1280}

HOSTILE = '<img src=x onerror="console.error(1)">\u202egnp.exe'
REFUSED = "all connection attempts failed: [Errno 111] Connection refused"


@pytest.fixture(scope="module")
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


class Window(NamedTuple):
    """A page in the browser, what it complained of and what it asked for."""

    page: Any
    complaints: list[str]
    requests: list[str]

    def deployments(self) -> list[str]:
        shown: list[str] = self.page.locator(".cards tbody th > bdi").all_text_contents()
        return shown

    def focus(self) -> str:
        """The id of the element in focus."""
        return str(self.page.locator(":focus").get_attribute("id"))

    def tab_to(self, place: str) -> None:
        """Press Tab until the element is in focus."""
        for _ in range(60):
            self.page.keyboard.press("Tab")
            if self.page.locator(f"{place}:focus").count():
                return
        pytest.fail(f"the keyboard does not reach {place}")


@contextmanager
def window(
    browser: Any, width: str = "desk", theme: str = "light", *, scripts: bool = True
) -> Iterator[Window]:
    context = browser.new_context(
        viewport={"width": WIDTHS[width], "height": 800}, color_scheme=theme, java_script_enabled=scripts
    )
    opened = Window(context.new_page(), [], [])
    opened.page.on("console", lambda message: opened.complaints.append(message.text))
    opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.page.on("request", lambda request: opened.requests.append(request.url))
    yield opened
    context.close()


# A bad day


def targets() -> Iterator[Target]:
    names = ("llama-3.1-70b-instruct", "whisper-large-v3", "embedder", "qwen3-235b")
    for n in range(12):
        labels = (("model_name", names[n % 4]), ("environment", ("production", "staging")[n % 2]))
        yield Target("search", f"w5prod0{n % 4}", f"d{n:03}xk9q", ModelOptions(), (), labels)
    for n in range(3):
        base_model = (("base_model", "Qwen/Qwen3-30B-A3B"),)
        yield Target("research", "", f"qv{n}trn8", LoopsOptions(), (), base_model)
    yield Target("research", "m9evil1", HOSTILE, ModelOptions(), (), (("model_name", HOSTILE),))


def poll(store: Store, clock: Clock) -> None:
    """One round: the first target waits for its poll still, those of research cannot be reached."""
    store.retarget(targets(), 300)
    for series, target in enumerate(list(targets())[1:], 40):
        clock.now += 2.3
        store.succeed(target, Snapshot({}, series, clock.now - 130), series / 100)
        if target.workspace == "research":
            store.fail(target, "connection", REFUSED, 0.004)
        if target.deployment_id == HOSTILE:
            store.fail(target, "invalid_response", f"{HOSTILE} {'long' * 45}", 10.0)


def endpoint(name: str, kind: Any, count: int, share: float, paused: float | None = None) -> EndpointStatus:
    stretch = max(1, share / 0.95)
    return EndpointStatus(
        endpoint=name,
        kind=kind,
        targets=count,
        interval_seconds=60,
        effective_interval_seconds=60 * stretch,
        needed_requests_per_second=20 * share / stretch,
        allowed_requests_per_second=20,
        budget_share=share,
        paused_until=moment(paused),
    )


def workspaces(now: float) -> list[WorkspaceStatus]:
    """One that asks for too much, and one whose circuit is open."""
    search = WorkspaceStatus(
        workspace="search",
        circuit="closed",
        circuit_reason=None,
        circuit_since=None,
        next_probe=None,
        last_listed=moment(now - 200),
        listing_error=None,
        endpoints=(endpoint("model_metrics", "model", 12, 1.33, now + 42),),
    )
    research = WorkspaceStatus(
        workspace="research",
        circuit="open",
        circuit_reason=REFUSED,
        circuit_since=moment(now - 750),
        next_probe=moment(now + 21),
        last_listed=moment(now - 86_400),
        listing_error="models: " + REFUSED,
        endpoints=(
            endpoint("model_metrics", "model", 1, 0.002),
            endpoint("loops_metrics", "loops", 3, 0.003, now - 900),
        ),
    )
    return [search, research]


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of a status page with something of everything on it."""
    clock = Clock()
    store = Store(clock)
    poll(store, clock)
    parts = Parts(
        store=store,
        pages=Pages(store, CollectorRegistry()),
        ready=store.ready,
        next_poll=lambda _: clock.now + 33,
        clock=clock,
        reload=None,
        workspaces=lambda: workspaces(clock.now),
    )
    server = Server(application(parts, "/metrics"))
    listener = listen("127.0.0.1:0")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_every_width_and_theme_and_asks_for_nothing_else(
    browser: Any, site: str, width: str, theme: str
) -> None:
    with window(browser, width, theme) as it:
        it.page.goto(site)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        it.page.screenshot(path=SCREENSHOTS / f"status-{width}-{theme}.png", full_page=True)
        assert it.page.evaluate("document.documentElement.scrollWidth") == WIDTHS[width]
        assert len(it.deployments()) == 16
        assert it.complaints == []
        assert [url for url in it.requests if not url.startswith("data:")] == [site]


def test_every_theme_has_colours_of_its_own(browser: Any, site: str) -> None:
    grounds = []
    for theme in ("light", "dark"):
        with window(browser, theme=theme) as it:
            it.page.goto(site)
            grounds.append(it.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(14, 18, 23)"]


def test_it_works_under_the_policy_that_it_is_served_with(browser: Any, site: str) -> None:
    with window(browser) as it:
        policy = it.page.goto(site).headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert it.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        it.page.get_by_label("Find").fill("embedder")
        it.page.get_by_role("button", name="Filter").click()
        assert it.deployments() == ["d002xk9q", "d006xk9q", "d010xk9q"]
        assert it.complaints == []


def test_a_hostile_name_stays_text(browser: Any, site: str) -> None:
    with window(browser) as it:
        it.page.goto(site)
        assert it.deployments().count(HOSTILE) == 1
        assert it.page.locator("img, script").count() == 0
        isolated = it.page.locator("bdi").evaluate_all(
            "all => all.every(each => getComputedStyle(each).unicodeBidi === 'isolate')"
        )
        assert isolated


def test_the_keyboard_alone_filters(browser: Any, site: str) -> None:
    with window(browser) as it:
        it.page.goto(site)
        it.tab_to("[name=q]")
        it.page.keyboard.type("WHISPER")
        with it.page.expect_navigation():
            it.page.keyboard.press("Enter")
        assert it.deployments() == ["d001xk9q", "d005xk9q", "d009xk9q"]
        assert it.focus() == "targets"  # the next Tab goes on from the results
        it.tab_to("form a")
        with it.page.expect_navigation():
            it.page.keyboard.press("Enter")
        assert len(it.deployments()) == 16


def test_the_keyboard_alone_sorts_and_stays_where_it_is(browser: Any, site: str) -> None:
    with window(browser) as it:
        it.page.goto(site)
        it.tab_to("#by-series")
        seen = []
        for _ in range(2):
            with it.page.expect_navigation():
                it.page.keyboard.press("Enter")
            assert it.focus() == "by-series"
            order = it.page.locator("th[aria-sort]").get_attribute("aria-sort")
            seen.append((order, it.deployments()[0]))
        assert seen == [("ascending", "d000xk9q"), ("descending", HOSTILE)]


def test_what_is_in_focus_is_seen(browser: Any, site: str) -> None:
    with window(browser) as it:
        it.page.goto(site)
        for place in ("header a", ".counts a", "[name=q]", "[name=state]", "button", "thead a"):
            it.tab_to(place)
            style = it.page.locator(":focus").evaluate("each => getComputedStyle(each).outline")
            assert "solid 2px" in style, place


def test_a_screen_reader_is_told_what_is_what(browser: Any, site: str) -> None:
    with window(browser, "phone") as it:
        it.page.goto(site)
        for role, name in [
            ("banner", None),
            ("navigation", "Pages"),
            ("main", None),
            ("region", "Workspaces"),
            ("region", "Targets"),
            ("search", "Targets"),
            ("searchbox", "Find"),
            ("combobox", "State"),
            ("combobox", "Workspace"),
            ("combobox", "Kind"),
            ("columnheader", "Last success"),
            ("rowheader", "qv0trn8"),
            ("contentinfo", None),
        ]:
            assert it.page.get_by_role(role, name=name, exact=True).count() >= 1, (role, name)
        assert it.page.title() == "4 down · baseten-exporter"


def test_without_scripts_nothing_is_missing(browser: Any, site: str) -> None:
    with window(browser, "phone", scripts=False) as it:
        it.page.goto(site)
        assert len(it.deployments()) == 16
        it.page.get_by_role("combobox", name="State").select_option("down")
        it.page.get_by_role("button", name="Filter").click()
        assert len(it.deployments()) == 4
        it.page.get_by_role("link", name="Deployment").click()
        assert it.deployments() == [HOSTILE, "qv0trn8", "qv1trn8", "qv2trn8"]
        it.page.get_by_role("link", name="All 16").click()
        assert len(it.deployments()) == 16


@pytest.mark.xdist_group("prometheus")  # where the demo runs already
def test_the_status_page_of_the_demo_shows_every_target(browser: Any, demo: "Demo") -> None:
    with window(browser) as it:
        it.page.goto(f"{demo.url}/")
        targets = it.page.request.get(f"{demo.url}/api/v1/targets").json()["targets"]
        assert sorted(it.deployments()) == sorted(each["deployment_id"] for each in targets)
        assert len(targets) > 0
        assert it.complaints == []
        it.page.get_by_role("link", name="Metrics").click()
        assert "baseten_exporter_build_info" in it.page.content()
