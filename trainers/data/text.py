"""Texts as token ids: read from files of words, or generated."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gradsweep.errors import UsageError
from trainers.data.store import Prepared, refuse_source
from trainers.options import datasets as options_of

EOS, UNKNOWN = "<eos>", "<unk>"
PARTS = ("train", "valid", "test")


@dataclasses.dataclass(frozen=True)
class Files:
    """The paths of a text's three files below data.root, and the numbers of tokens that they must have."""

    name: str
    folder: str
    pattern: str
    archive: str
    tokens: tuple[int, int, int] | None = None


WIKITEXT2 = Files(
    "wikitext2",
    "wikitext-2",
    "wiki.{}.tokens",
    "the extracted wikitext-2-v1.zip (not the raw one)",
    (2_088_628, 217_646, 245_569),
)
PTB = Files(
    "ptb", "ptb", "ptb.{}.txt", "simple-examples/data of Mikolov's simple-examples.tgz", (929_589, 73_760, 82_430)
)


def find_files(options: Any) -> Files:
    if isinstance(options, options_of.TextFiles):
        return Files("text", options.folder, "{}.txt", "three files of text")
    return WIKITEXT2 if isinstance(options, options_of.WikiText2) else PTB


def build(options: Any, root: Path, download: bool = False) -> Prepared:
    """Return the training, validation and test parts as token ids, and the vocabulary.

    Tokens are separated by blanks; `<eos>` ends every line. The vocabulary is that of the training part, in order of
    first appearance; a word of the other parts that is not in it becomes `<unk>`. This is the usual way: WikiText-2
    then has 33,278 different tokens, Penn Treebank 10,000. (Other figures, such as 28,869 for WikiText-2, come from
    other tokenisations.)

    There are no published checksums of these files: instead, the numbers of tokens are compared with the known ones.

    Raises:
        UsageError: files are missing, are no text, or have an unexpected number of tokens.
    """
    if isinstance(options, options_of.SyntheticText):
        return _markov(options)
    files = find_files(options)
    folder = (root / files.folder).absolute()
    paths = [folder / files.pattern.format(part) for part in PARTS]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise UsageError(
            f"dataset={files.name}: not found: {', '.join(missing)} in {folder}; valid is {files.archive} there (or "
            f"data.root=DIR where it is); nobody offers these files to programs"
        )
    numbers: dict[str, int] = {}
    arrays: dict[str, np.ndarray] = {}
    for part, path in zip(PARTS, paths, strict=True):
        words = _words(files.name, path)
        if part != "train":
            words = (word if word in numbers else UNKNOWN for word in words)
        arrays[part] = np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int32)
    for part, path, published in zip(PARTS, paths, files.tokens or (None,) * 3, strict=True):
        count = len(arrays[part])
        if published is not None and count != published:
            fault = f"has {count:,} tokens instead of {published:,}"
            raise refuse_source(files.name, path, fault, "the published file, or dataset=text for any other")
        if count < 2:
            raise refuse_source(files.name, path, f"has {count} tokens", "a text")
    arrays["vocabulary"] = np.frombuffer("\n".join(numbers).encode(), dtype=np.uint8)
    return Prepared(arrays, {"classes": len(numbers)}, paths)


def _words(name: str, path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        try:
            for line in file:
                yield from line.split()
                yield EOS
        except UnicodeDecodeError as error:
            raise UsageError(f"dataset={name}: {path}: is not text in UTF-8: {error}") from error


def _markov(options: options_of.SyntheticText) -> Prepared:
    """Generate text as a Markov chain of order two with fixed seeds.

    After any two tokens, `branches` tokens can follow, each half as likely as the previous one.
    """
    size, branches = options.vocabulary, options.branches
    weights = 0.5 ** np.arange(branches)
    ends = np.cumsum(weights / weights.sum())[:-1]
    # successors of (a, b): a random row of a table, so that large vocabularies need no table of all pairs
    table = np.random.RandomState([0]).rand(4096, size).argsort(1)[:, :branches]
    arrays = {}
    for part, (name, count) in enumerate(zip(PARTS, (options.train, options.test, options.test), strict=True), 1):
        choices = np.searchsorted(ends, np.random.RandomState([part]).rand(count), side="right").tolist()
        rows, before, last = table.tolist(), 0, 0
        ids = np.empty(count, dtype=np.int32)
        for place, choice in enumerate(choices):
            before, last = last, rows[(before * 1009 + last * 9176 + before * last) % 4096][choice]
            ids[place] = last
        arrays[name] = ids
    return Prepared(arrays, {"classes": size})
