"""All pages of the built site, opened from the disk in a real browser: nothing fails, nothing is too wide."""

import re
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.browser

WIDTHS = (360, 1400)
SERIOUS = ("serious", "critical")
# One of each kind of page is looked at by axe, in both schemes.
LOOKED_AT = (
    "index",
    "reproduction/index",
    "reproduction/svm-rank",
    "pictures/index",
    *(f"pictures/{name}" for name in ("trajectories", "trap", "ranks", "atlas", "margins", "paths")),
)


def names(site):
    found = [str(path.relative_to(site).with_suffix("")) for path in sorted(site.rglob("*.html"))]
    assert len(found) > 60
    return found


def test_no_page_has_an_error_or_asks_the_network_or_is_wider_than_the_window(opened, site):
    wrong = []
    for name in names(site):
        one = opened(name, width=WIDTHS[-1])
        wrong += [f"{name}: {said}" for said in one.said]
        wrong += [f"{name} asks for {url}" for url in one.asked if not url.startswith(("file:", "data:", "blob:"))]
        for width in WIDTHS:
            one.page.set_viewport_size({"width": width, "height": 900})
            over = one.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            wrong += [f"{name} is {over} px too wide for {width}"] * (over > 0)
        one.page.context.close()
    assert wrong == []


def test_the_dark_scheme_is_dark(opened):
    for scheme, is_dark in (("light", False), ("dark", True)):
        page = opened("pictures/trap", color_scheme=scheme).page
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        text = page.evaluate("getComputedStyle(document.querySelector('.picture svg text')).fill")
        lightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ground, text)]
        assert (lightness[0] < lightness[1]) is is_dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", LOOKED_AT)
def test_axe_finds_no_serious_fault(opened, name, scheme):
    from axe_playwright_python.sync_playwright import Axe  # pyright: ignore[reportMissingImports]

    page = opened(name, color_scheme=scheme).page
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = Axe().run(page).response["violations"]
    serious = [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]
    assert serious == []


def test_links_within_the_reproduction_and_the_pictures_lead_somewhere(opened, site):
    anchors, wrong = {}, []
    for name in names(site):
        if not name.startswith(("reproduction/", "pictures/")):
            continue
        page = opened(name).page
        for link in {*page.evaluate("[...document.querySelectorAll('article a[href]')].map((one) => one.href)")}:
            url = urlsplit(link)
            if url.scheme != "file":
                continue
            path = unquote(url.path)
            if path not in anchors:
                with open(path) as file:
                    anchors[path] = set(re.findall(r'id="([^"]+)"', file.read()))
            wrong += [f"{name}: {link}"] * bool(url.fragment and unquote(url.fragment) not in anchors[path])
        page.context.close()
    assert wrong == []
    assert len(anchors) > 50
