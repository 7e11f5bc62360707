"""Write the generated parts of options.md, columns.md and exit-statuses.md: python docs/reference/generate.py

Each part comes from the one place in the code, or in the comments of conf/, where its content stands.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

PAGES = Path(__file__).resolve().parent
sys.path.insert(0, str(PAGES.parent.parent))
from gradsweep import csv_columns, failure_causes, run_directory  # noqa: E402
from gradsweep.cli import exit_status, markdown_sections  # noqa: E402
from gradsweep.source_tree import CONF  # noqa: E402
from reports.reading import columns  # noqa: E402

CONTINUED = 20
"""From this column on, a comment in a line of its own continues the comment of the line before."""
LEFT_OUT = ("experiment", "hydra/sweeper")
"""Groups with no options of their own."""


@dataclasses.dataclass
class Option:
    """A line `key: default  # meaning` of a YAML file, its key with those of the sections around it."""

    key: str
    default: str
    meaning: str


@dataclasses.dataclass
class ConfFile:
    """A file of conf/: its first comment, the files that it begins from, its options."""

    name: str
    about: str
    bases: list[str]
    options: list[Option]

    @property
    def base(self) -> str:
        """The choice of the same group whose options this file presets; empty for a choice with its own options."""
        return next((base for base in self.bases if "/" not in base and base != "_self_"), "")


def read(path: Path) -> ConfFile:
    """Read a file of conf/ with its comments."""
    found = ConfFile(path.stem, "", [], [])
    sections: list[tuple[int, str]] = []
    above = ""
    is_head = True
    for line in path.read_text(encoding="utf-8").splitlines():
        indent, text = len(line) - len(line.lstrip()), line.strip()
        if text.startswith("#"):
            words = text.lstrip("# ")
            if is_head:
                found.about = f"{found.about} {words}".strip()
            elif indent >= CONTINUED and found.options:
                found.options[-1].meaning += f" {words}"
            else:
                above = f"{above} {words}".strip()
            continue
        is_head = False
        parts = re.fullmatch(r"([\w.]+):(?:\s+(.*?))??(?:\s+# (.*))?", text)
        if parts is None:
            continue
        key, value, comment = parts[1], parts[2] or "", parts[3] or ""
        if key == "defaults":
            found.bases = re.findall(r"[\w/@]+", value)
            continue
        sections = [(depth, name) for depth, name in sections if depth < indent]
        found.options.append(Option(".".join([*(name for _, name in sections), key]), value, comment or above))
        sections.append((indent, key))
        above = ""
    return found


def build_options() -> str:
    """Return the tables of all options: those without a group, then each group with its choices."""
    config = read(CONF / "config.yaml")
    text = (CONF / "config.yaml").read_text(encoding="utf-8")
    chosen = dict(re.findall(r"^  - (?:override )?/?([a-z][\w/]*): (\w+)", text, re.MULTILINE))
    options = [option for option in config.options if not option.key.startswith("hydra") and option.key != "defaults"]
    sections = [option.key for option in options if any(other.key.startswith(f"{option.key}.") for other in options)]
    tops = [name for name in sections if "." not in name]
    parts = ["## Without a group", *_tabulate(option for option in options if option.key.split(".")[0] not in tops)]
    for top in tops:
        head = next(option for option in options if option.key == top)
        parts += [f"## {top}", _sentence(head.meaning)]
        parts += _tabulate(
            option for option in options if option.key.startswith(f"{top}.") and option.key not in sections
        )
    for folder in sorted({path.parent for path in CONF.glob("*/**/*.yaml")}):
        group = folder.relative_to(CONF).as_posix()
        if group not in LEFT_OUT:
            parts += [f"## {group}", f"The default is `{group}={chosen[group]}`."]
            parts += _describe_group(group, [read(path) for path in sorted(folder.glob("*.yaml"))])
    return "\n\n".join(part for part in parts if part)


def _describe_group(group: str, choices: Sequence[ConfFile]) -> Iterator[str]:
    yield _build_table(("choice", "description"), ((f"`{group}={file.name}`", _describe(file)) for file in choices))
    prefix = group.replace("/", ".")
    own = [file for file in choices if not file.base]
    rows: dict[tuple[str, str], dict[str, list[str]]] = {}
    for file in own:
        for option in file.options:
            if not option.key.startswith("_"):
                defaults = rows.setdefault((option.key, option.meaning), {})
                defaults.setdefault(option.default, []).append(file.name)
    if rows:
        yield _build_table(
            ("option", "default", "meaning"),
            (
                (f"`{prefix}.{key}`", _format_defaults(defaults, len(own)), _sentence(meaning))
                for (key, meaning), defaults in sorted(rows.items(), key=lambda row: row[0][0])
            ),
        )


def _describe(file: ConfFile) -> str:
    """Return the first comment of a file; for a preset also the options that it sets."""
    if not file.base:
        return _sentence(file.about)
    presets = " ".join([file.base, *(f"{option.key}={option.default}" for option in file.options)])
    return f"{_sentence(file.about)} `{presets}`"


def _format_defaults(defaults: Mapping[str, Sequence[str]], count: int) -> str:
    """Return the default of an option, with the choices that have it unless all `count` choices of the group do."""
    if sum(map(len, defaults.values())) == count and len(defaults) == 1:
        return f"`{next(iter(defaults))}`"
    return "; ".join(f"`{value}` ({', '.join(names)})" for value, names in defaults.items())


def _tabulate(options: Iterable[Option]) -> Iterator[str]:
    rows = [(f"`{option.key}`", f"`{option.default}`", _sentence(option.meaning)) for option in options]
    yield _build_table(("option", "default", "meaning"), rows)


def build_columns() -> str:
    """Return the tables of the columns of DataFrames and CSVs."""
    epochs = {**csv_columns.EPOCH_MEANINGS, **csv_columns.LOCAL_EPOCH_MEANINGS}
    frames = (
        (
            "runs",
            "`report.runs` and `summary.csv` have a row for each run. Further columns follow: the metrics of the runs' "
            "[tasks](../guide/tasks.md), such as `metric.mae`, and each key of the configs, such as `optimizer.lr`.",
            columns.RUN_MEANINGS,
            columns.RUN_COLUMNS,
        ),
        (
            "epochs",
            "`report.epochs` and each run's epochs.csv have a row for each evaluation: after every `evaluate_every`-th "
            "epoch or every `evaluate_every_steps`-th step, and at the end of the run. Metrics of a task are further "
            "columns of the file, such as `test_mae`. The last five columns have values only in "
            "[decentralised](../guide/decentralised.md) runs, where `test_loss` and `test_accuracy` are those of the "
            "mean of the workers' models. With `algorithm.evaluate_local=false`, the first four of the five are empty.",
            epochs,
            columns.EPOCH_COLUMNS,
        ),
        (
            "steps",
            "`report.steps` and each run's steps.csv have a row for each optimizer step. Times, loss and bytes are "
            "means over the workers.",
            csv_columns.STEP_MEANINGS,
            columns.STEP_COLUMNS,
        ),
    )
    others = (
        (
            run_directory.LOCAL_MODELS,
            "A decentralised run has, after every evaluated epoch, a row for each worker.",
            csv_columns.LOCAL_MODEL_MEANINGS,
        ),
        (
            run_directory.YARDSTICK,
            "A run has a row for each worker and each reading of the [yardstick]"
            "(../guide/races.md#was-the-machine-quiet), about once a second of training.",
            csv_columns.YARDSTICK_MEANINGS,
        ),
        (
            run_directory.RACE,
            "A [race](../guide/races.md) has a row for each block of steps. Times are means over its timed steps and "
            "over the workers.",
            csv_columns.RACE_MEANINGS,
        ),
    )
    parts = []
    for name, about, meanings, dtypes in frames:
        rows = [(f"`{column}`", f"`{dtypes[column]}`", text) for column, text in meanings.items()]
        parts += [f"## {name}", about, _build_table((f"column of `{name}`", "dtype", "meaning"), rows)]
    for name, about, meanings in others:
        parts += [f"## {name}", about, _build_meanings(("column", "meaning"), meanings)]
    return "\n\n".join(parts)


def build_exit_statuses() -> str:
    """Return the tables of exit statuses, statuses of runs, and causes of failures."""
    tables = (
        ("Exit statuses of a command", ("exit status", "meaning"), exit_status.MEANINGS),
        ("Statuses of a run", ("status", "meaning"), run_directory.STATUS_MEANINGS),
        ("Causes of a failure", ("cause", "what happened"), failure_causes.MEANINGS),
    )
    return "\n\n".join(f"## {title}\n\n{_build_meanings(head, meanings)}" for title, head, meanings in tables)


def _build_meanings(head: Sequence[str], meanings: Mapping[str, str]) -> str:
    return _build_table(head, ((f"`{name}`", text) for name, text in meanings.items()))


def _build_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    first, *others = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([first, f"|{'---|' * len(head)}", *others])


def _sentence(comment: str) -> str:
    """Return a comment in Markdown, with links in place of the pages that it names."""
    escaped = re.sub(r"<(\w+)>", r"&lt;\1&gt;", comment.strip()).replace("*", "\\*")
    link = r"[\2](../\1/\2\3)"
    linked = re.sub(r"docs/(guide|reference|design)/([\w-]+)(\.md(?:#[\w-]+)?)", link, escaped)
    return linked.replace("](../reference/", "](")


PARTS = {
    "options": ("options.md", build_options),
    "columns": ("columns.md", build_columns),
    "exit statuses": ("exit-statuses.md", build_exit_statuses),
}
"""By the name of each part: its page and the function that writes it."""


def main() -> None:
    """Write all parts into their pages."""
    for part, (page, build) in PARTS.items():
        markdown_sections.fill(PAGES / page, part, build())


if __name__ == "__main__":
    main()
