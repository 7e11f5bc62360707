"""The documentation tells the truth where a program can tell."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import compressors
from gradsweep.cli import markdown_sections
from sweep.console import events
from tests.conftest import ROOT
from trainers.rules import __main__ as compatibility
from trainers.topology import __main__ as topology

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


LONGEST = 150
"""The most lines of a page of the guide."""
GENERATED = runpy.run_path(str(ROOT / "docs/reference/generate.py"))


def list_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*\n(?:.*\n)*?```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    heads = (re.sub(r"\]\([^)]*\)", "", head) for head in re.findall("^#+ (.*)", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            linked = page.parent / target if target else page
            assert linked.exists(), target
            assert not anchor or linked.suffix != ".md" or anchor in list_anchors(linked), f"{target}#{anchor}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "guide"], ids=lambda page: page.stem)
def test_pages_of_the_guide_are_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("part", GENERATED["PARTS"])
def test_generated_pages_are_up_to_date(part: str) -> None:
    page, build = GENERATED["PARTS"][part]
    assert markdown_sections.read(ROOT / "docs/reference" / page, part) == build(), "python docs/reference/generate.py"


def test_the_table_of_what_goes_together_is_the_programs() -> None:
    assert (
        markdown_sections.read(ROOT / "docs/reference/compatibility.md", compatibility.PART)
        == compatibility.build_page()
    )


def test_the_table_of_what_goes_together_is_put_into_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- what goes together: how -->\noutdated\n<!-- end of what goes together -->\nafter\n")
    assert compatibility.main(["--into", str(page)]) == 0 and compatibility.main([]) == 0
    assert (
        markdown_sections.read(page, compatibility.PART)
        == compatibility.build_page()
        == capsys.readouterr().out.strip()
    )
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "outdated" not in text
    assert compatibility.main(["--into", str(tmp_path / "no.md")]) == 2
    assert re.fullmatch("python -m trainers.rules: .*no.md: No such file .*\n", capsys.readouterr().err)


def test_the_table_of_topologies_is_the_programs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- topologies: how -->\noutdated\n<!-- end of topologies -->\n")
    assert topology.main(["--workers", "16", "--into", str(page)]) == 0
    assert markdown_sections.read(ROOT / "docs/guide/topologies.md", topology.PART) == markdown_sections.read(
        page, topology.PART
    )


def test_every_event_is_told() -> None:
    page = (ROOT / "docs/reference/events.md").read_text(encoding="utf-8")
    names = [value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)]
    assert len(names) > 8 and all(f"| `{name}` |" in page for name in names)


def test_what_every_compressor_sends_is_told() -> None:
    page = (ROOT / "docs/reference/compressors.md").read_text(encoding="utf-8")
    text = page.split("## What each method sends")[1].split("\n## ")[0]
    assert all(f"| `{name}` |" in text for name in compressors.registry())


def test_files_that_the_docs_name_exist() -> None:
    for page in PAGES:
        for path in re.findall(
            r"`((?:benchmarks|docs|tests|conf|sweep|trainers|reports|compressors)/[\w./]+)`", page.read_text()
        ):
            assert (ROOT / path).exists(), f"{page.name}: {path}"


COMPOSE = """
import sys
import hydra
from omegaconf import OmegaConf
from sweep.config import schema
from sweep.launch.session import Session
from trainers.config.groups import GROUPS
from trainers.config.run_config import RunConfig
from trainers.rules.resolve import resolve
schema.register(RunConfig, GROUPS)
schema.register_resolvers(Session().choose_directory)
with hydra.initialize_config_dir(version_base="1.3", config_dir=sys.argv[1]):
    for line in sys.stdin:
        try:
            resolve(OmegaConf.to_container(hydra.compose("config", line.split())))
        except Exception as error:
            print(f"{line.strip()}: {error}")
"""


@pytest.mark.thorough
def test_names_in_other_systems_are_commands() -> None:
    """Every command of the table, and the options in its remarks, make a config that can run."""
    page = (ROOT / "docs/reference/compressors.md").read_text(encoding="utf-8")
    section = page.split("## Names in other systems")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if "=" in line]
    commands = [row[2].strip("`") for row in rows if len(row) == 4]
    assert len(commands) > 60 and all(command.startswith("compressor=") for command in commands)
    for row, command in zip([row for row in rows if len(row) == 4], list(commands), strict=True):
        for option in re.findall(r"`(compressor(?:\.\w+)?=\w+)`", row[3]):
            commands.append(f"{command} {option}" if option.startswith("compressor.") else option)
    wrong = "compressor=topk compressor.ratio=2"  # that the test can fail
    done = subprocess.run(
        [sys.executable, "-c", COMPOSE, str(ROOT / "conf")],
        cwd=ROOT,
        input="\n".join([*commands, wrong]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.fullmatch(f"{re.escape(wrong)}: .*ratio=2.*\n", done.stdout), done.stdout


def test_the_site_can_be_built(tmp_path: Path) -> None:
    """A wrong anchor is an error; links out of docs/ are not."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "site/guide/first-sweep.html").is_file(), done.stdout + done.stderr
