"""List the formats of tables and pictures by file suffix; this module imports nothing, so that --help stays quick."""

from __future__ import annotations

TABLES = ("csv", "md", "tex", "html", "parquet")
TABLES_BY_DEFAULT = TABLES[:3]
PICTURES = ("png", "svg", "pdf")
