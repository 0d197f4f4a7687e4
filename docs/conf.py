"""Settings of the site; `make docs` builds it."""

import logging
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
# Settings of the kernel that runs the notebooks.
os.environ["IPYTHONDIR"] = str(HERE / "_ext" / "ipython")
logging.getLogger("traitlets").setLevel(logging.WARNING)

import jaxattn  # noqa: E402
from jaxattn.parallel import effort  # noqa: E402

# Most of the notebooks' time goes into compiling: little optimization halves it.
os.environ.setdefault("XLA_FLAGS", effort.BRIEF.flags())

project = "jaxattn"
author = "the jaxattn authors"
release = version = jaxattn.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb", "sphinxcontrib.bibtex"]
extensions += ["api_pages", "commands", "evidence", "formulas", "webp"]
# Pages made from the claims, and pictures that move.
extensions += [name for name in ("reproduction", "pictures") if (HERE / "_ext" / f"{name}.py").exists()]
exclude_patterns = ["_ext", "_static"]

# A link to a name of this package that nothing describes is a warning; types of other packages have no page here.
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!jaxattn\.).*")]

# Docstrings.
default_role = "code-or-name"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 90
add_module_names = False
toc_object_entries_show_parents = "hide"

# Pages and notebooks.
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
# Ends a notebook that hangs; on an idle machine each takes some seconds.
nb_execution_timeout = 900
nb_merge_streams = True
bibtex_bibfiles = ["papers.bib"]
bibtex_default_style = "unsrt"

html_math_renderer = "katex"
html_theme = "furo"
html_title = "jaxattn"
html_static_path = ["_static"]
html_css_files = ["jaxattn.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def setup(app):
    """Leave parts of the site that are not there yet out of the table of contents; run notebooks again when due."""

    def read(app, docname, source):
        for part in ("reproduction/index", "pictures/index"):
            if docname == "index" and not (HERE / f"{part}.md").exists() and not (HERE / f"{part}.rst").exists():
                source[0] = source[0].replace(f"{part}\n", "")

    def outdated(app, env, added, changed, removed):
        # A notebook shows what the package does: it is as old as the newest of the package's modules.
        newest = max(path.stat().st_mtime for path in Path(jaxattn.__file__).parent.rglob("*.py"))
        there = set(env.all_docs) - set(removed)
        pages = [name for name in there if "file_format: mystnb" in Path(env.doc2path(name)).read_text()[:200]]
        # Sphinx leaves the pages of a part that is gone.
        for name in removed:
            Path(app.outdir, f"{name}.html").unlink(missing_ok=True)
        return [name for name in pages if env.all_docs[name] < newest * 1e6]

    def levels(app, pagename, templatename, context, doctree):
        # Captions of the navigation are headings whose level Sphinx does not state.
        tree = context.get("furo_navigation_tree", "")
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')

    app.connect("source-read", read)
    app.connect("env-get-outdated", outdated)
    # After the theme has made the tree.
    app.connect("html-page-context", levels, priority=900)
