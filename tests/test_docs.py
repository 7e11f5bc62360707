"""The documentation tells the truth where a program can tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import compressors
from tests.conftest import ROOT
from trainers import compatibility

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_table_of_what_goes_together_is_the_programs() -> None:
    assert (ROOT / "docs/compatibility.md").read_text(encoding="utf-8").endswith(compatibility.table() + "\n")


def test_every_compressor_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in compressors.registry())


def test_files_that_the_docs_name_exist() -> None:
    for page in PAGES:
        for path in re.findall(
            r"`((?:benchmarks|docs|tests|conf|sweep|trainers|reports|compressors)/[\w./]+)`", page.read_text()
        ):
            assert (ROOT / path).exists(), f"{page.name}: {path}"
