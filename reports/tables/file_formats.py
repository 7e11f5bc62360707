"""The formats of tables and pictures, by the suffixes of their files; loads nothing, so that --help can name them."""

from __future__ import annotations

TABLES = ("csv", "md", "tex", "html", "parquet")
TABLES_BY_DEFAULT = TABLES[:3]
PICTURES = ("png", "svg", "pdf")
