"""The built site in an installed Chromium, offline, for `make docs-test`; the other tests here need neither."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "site"
# What the browser is called, in Debian and elsewhere.
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# ms; a machine may be busy with other things.
_SLOW = 60_000


@pytest.fixture(scope="session")
def site():
    """The folder of the built site."""
    if not (SITE / "index.html").exists():
        pytest.fail(f"expected the site in {SITE}, found none: `make docs` builds it", pytrace=False)
    return SITE


@pytest.fixture(scope="session")
def chromium():
    """A running browser."""
    try:
        from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        pytest.fail(f"expected the package {error.name}, found none: `make docs-test` installs it", pytrace=False)
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        wanted = f"expected a browser ({', '.join(_NAMES)}) on the PATH, found none"
        pytest.fail(f"{wanted}: install one, in Debian by `apt-get install chromium`", pytrace=False)
    with sync_playwright() as playwright:
        # In a container it runs as root, where it has no sandbox; it opens files of this folder alone.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page of the site, with what the browser said of it."""

    def __init__(self, context, site, name):
        """Open the page of this name, without `.html`."""
        self.said, self.asked = [], []
        self.page = context.new_page()
        self.page.on("console", lambda one: self.said.append(one.text) if one.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("requestfailed", lambda one: self.said.append(f"{one.url}: {one.failure}"))
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.goto((site / f"{name}.html").as_uri())


@pytest.fixture
def opened(chromium, site):
    """Open a page of the site offline, in a window of its own: `opened(name, width=1400, color_scheme="dark", ...)`."""
    contexts = []

    def open_page(name, width=1400, **settings):
        context = chromium.new_context(offline=True, viewport={"width": width, "height": 900}, **settings)
        context.set_default_timeout(_SLOW)
        contexts.append(context)
        return Opened(context, site, name)

    yield open_page
    for context in contexts:
        context.close()
