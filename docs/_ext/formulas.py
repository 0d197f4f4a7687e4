"""Formulas by KaTeX, whose files the site holds itself (docs/_static/katex): no network, also from a disk.

The page holds the TeX, so that it can be read and searched without scripts; `formulas.js` puts the formula in its
place.
"""

from __future__ import annotations

from typing import Any


def _rendered(tag: str, end: str, **attributes: str) -> Any:
    def render(translator: Any, node: Any) -> None:
        from docutils.nodes import SkipNode

        translator.body.append(translator.starttag(node, tag, "", CLASS="math", **attributes))
        translator.body.append(translator.encode(node.astext()) + end)
        raise SkipNode

    return render


def setup(app: Any) -> dict[str, bool]:
    """Make this the renderer of formulas, and add its files to every page."""
    inline, block = _rendered("span", "</span>"), _rendered("div", "</div>\n", **{"data-display": "1"})
    app.add_html_math_renderer("katex", (inline, None), (block, None))
    app.add_css_file("katex/katex.min.css")
    app.add_js_file("katex/katex.min.js")
    app.add_js_file("formulas.js")
    return {"parallel_read_safe": True}
