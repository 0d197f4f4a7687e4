"""The project's figures as WebP images of moderate size, made when a build starts; the 300 dpi PNGs stay in figures/.

A page shows one by the directive `{result} NAME`, whose content is the caption::

    :::{result} local-convergence
    W aligns with the Frobenius solution.
    :::
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Of the widest figures, 6.75 in: 200 dots an inch.
WIDTH = 1350


def convert(source: Path, target: Path, width: int = WIDTH) -> None:
    """Write a PNG as WebP, at most `width` pixels wide, unless the target is newer."""
    from PIL import Image

    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(source) as image:
        image = image.convert("RGB")
        image.thumbnail((width, 10 * width))
        image.save(target, "WEBP", quality=82, method=6)


def setup(app: Any) -> dict[str, bool]:
    """Convert the figures that pages ask for."""
    from docutils.parsers.rst.directives.images import Figure
    from sphinx.util.docutils import SphinxDirective

    class Result(Figure, SphinxDirective):
        """A figure of figures/ by its name, with a caption."""

        def run(self) -> list[Any]:
            name = self.arguments[0]
            source = Path(self.env.srcdir).parent / "figures" / f"{name}.png"
            if not source.exists():
                reporter = self.state.document.reporter
                return [reporter.warning(f"figures/{name}.png: no such figure", line=self.lineno)]
            convert(source, Path(self.env.srcdir) / "generated" / f"{name}.webp")
            self.env.note_dependency(str(source))
            self.arguments[0] = f"/generated/{name}.webp"
            self.options.setdefault("alt", " ".join(self.content) or name)
            return super().run()

    app.add_directive("result", Result)
    return {"parallel_read_safe": True}
