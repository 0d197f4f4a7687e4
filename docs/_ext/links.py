"""Look at a built site as a browser would from a disk: `python docs/_ext/links.py site`.

Reports links to pages, files and anchors that are not there, scripts, styles and images that would be loaded from a
network, modules and absolute paths, which browsers block on `file://`, and a site that is too large.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LARGEST = 15e6
# What a page loads by itself; a link `<a href>` to another site is none of these.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}


class Page(HTMLParser):
    """The anchors of a page, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.modules = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take down one tag."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.modules += tag == "script" and given.get("type") == "module"
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if given.get(LOADED.get(tag, "")):
            self.loaded.append(given[LOADED[tag]])


def faults(site: Path) -> list[str]:
    """Return what is wrong with a site, a line each; nothing if all is well."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf8")) for path in sorted(site.rglob("*.html"))}
    lines = []
    for path, page in pages.items():
        own = path.relative_to(site.resolve())
        lines += [f"{own}: a script of type module, which a browser blocks on file://"] * page.modules
        for url in [*page.links, *page.loaded]:
            parts = urlsplit(url)
            if url.startswith("data:") or (parts.scheme and url in page.links):
                continue
            if parts.scheme or url.startswith("/"):
                lines.append(f"{own}: {url} is not in a folder of the site")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                lines.append(f"{own}: {url} leads to no file")
            elif target in pages and parts.fragment and unquote(parts.fragment) not in pages[target].anchors:
                lines.append(f"{own}: {url} leads to no anchor of {target.name}")
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    return lines + ([f"{size / 1e6:.1f} MB, more than {LARGEST / 1e6:g}"] if size > LARGEST else [])


if __name__ == "__main__":
    lines = faults(Path(sys.argv[1]))
    print("\n".join(lines), file=sys.stderr)
    sys.exit(bool(lines))
