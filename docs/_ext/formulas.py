"""Formulas by KaTeX, whose files the site holds itself (docs/_static/katex): no network, also from a disk.

The page holds the TeX, so that it can be read and searched without scripts; `formulas.js` puts the formula in its
place.
"""

from __future__ import annotations

from typing import Any


def _inline(translator: Any, node: Any) -> None:
    from docutils.nodes import SkipNode

    translator.body.append(translator.starttag(node, "span", "", CLASS="math"))
    translator.body.append(translator.encode(node.astext()) + "</span>")
    raise SkipNode


def _block(translator: Any, node: Any) -> None:
    from docutils.nodes import SkipNode

    translator.body.append(translator.starttag(node, "div", "", CLASS="math", **{"data-display": "1"}))
    translator.body.append(translator.encode(node.astext()) + "</div>\n")
    raise SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Make this the renderer of formulas, and add its files to every page."""
    app.add_html_math_renderer("katex", (_inline, None), (_block, None))
    app.add_css_file("katex/katex.min.css")
    app.add_js_file("katex/katex.min.js")
    app.add_js_file("formulas.js")
    return {"parallel_read_safe": True}
