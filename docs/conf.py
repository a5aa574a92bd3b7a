"""Sphinx configuration; `make docs` builds the documentation with warnings as errors."""

project = "MPI Opt"
author = "the MPI Opt developers"
copyright = author

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["schema"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "dollarmath"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["pytest"]  # of `mpi_opt.testing`; only tests need it
default_role = "code"

html_theme = "pydata_sphinx_theme"
html_title = "MPI Opt"
html_copy_source = False
html_theme_options = {"show_prev_next": False, "navigation_with_keys": False}
html_static_path = ["_static"]
html_css_files = ["mpi_opt.css"]
# pages without a section of their own: their left column would be empty
html_sidebars = {page: [] for page in ("index", "install", "tutorial", "architecture")}
