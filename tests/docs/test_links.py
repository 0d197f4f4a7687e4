"""Faults of a built site are found: broken links, what needs a network, and what a browser blocks on `file://`."""

import pytest

from tests.docs.test_api_pages import extension

links = extension("links")


def faults(tmp_path, body: str) -> list[str]:
    (tmp_path / "other.html").write_text('<h1 id="here">Other</h1>')
    (tmp_path / "page.html").write_text(f'<p id="top">{body}</p>')
    return links.faults(tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        '<a href="other.html#here">x</a><a href="#top">x</a><a href="#">x</a>',
        '<a href="https://arxiv.org/abs/2308.16898">x</a>',
        '<img src="data:image/png;base64,AAAA">',
    ],
)
def test_a_good_page_has_no_faults(tmp_path, body):
    assert faults(tmp_path, body) == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('<a href="none.html">x</a>', "none.html leads to no file"),
        ('<a href="other.html#there">x</a>', "other.html#there leads to no anchor of other.html"),
        ('<a href="#there">x</a>', "#there leads to no anchor of page.html"),
        ('<script src="https://example.org/x.js"></script>', "https://example.org/x.js is not in a folder of the site"),
        ('<link href="//example.org/x.css">', "is not in a folder of the site"),
        ('<img src="/x.png">', "/x.png is not in a folder of the site"),
        ('<script type="module">1</script>', "a script of type module"),
    ],
)
def test_a_fault_is_reported(tmp_path, body, told):
    assert [told in line for line in faults(tmp_path, body)] == [True]


def test_a_site_that_is_too_large_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "LARGEST", 10)
    assert faults(tmp_path, "")[-1].endswith("MB, more than 1e-05")
