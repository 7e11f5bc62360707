"""Texts as token ids: read from files, from Python itself, or generated."""

from __future__ import annotations

import dataclasses
import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradsweep.errors import UsageError, bad_value
from trainers.data.store import Prepared, refuse_source
from trainers.options import datasets as options_of
from trainers.options.python_topics import describe_topics, hash_topics, read_topics

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


SHAKESPEARE = Path("tinyshakespeare", "input.txt")
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def find_files(options: Any) -> Files:
    if isinstance(options, options_of.TextFiles):
        return Files("text", options.folder, "{}.txt", "three files of text")
    return WIKITEXT2 if isinstance(options, options_of.WikiText2) else PTB


def build(options: Any, root: Path, download: bool = False) -> Prepared:
    """Return the training, validation and test parts as token ids, and facts about them.

    Raises:
        UsageError: files are missing, are no text, or are not the published ones; a token needs a package.
    """
    if isinstance(options, options_of.SyntheticText):
        return _markov(options)
    if isinstance(options, options_of.WholeText):
        return _cut(options, root)
    return _read_parts(options, root)


def _read_parts(options: Any, root: Path) -> Prepared:
    """Read a text of three files.

    The usual vocabulary of words is that of the training part: WikiText-2 then has 33,278 different tokens, Penn
    Treebank 10,000. (Other figures, such as 28,869 for WikiText-2, come from other tokenisations.) There are no
    published checksums of these files: instead, the numbers of tokens are compared with the known ones.
    """
    files = find_files(options)
    folder = (root / files.folder).absolute()
    paths = [folder / files.pattern.format(part) for part in PARTS]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise UsageError(
            f"dataset={files.name}: not found: {', '.join(missing)} in {folder}; valid is {files.archive} there (or "
            f"data.root=DIR where it is); nobody offers these files to programs"
        )
    texts = {part: read_text(files.name, path) for part, path in zip(PARTS, paths, strict=True)}
    arrays, words = tokenise(texts, getattr(options, "tokens", "words"))
    for part, path, published in zip(PARTS, paths, files.tokens or (None,) * 3, strict=True):
        count = len(arrays[part])
        if published is not None and count != published:
            fault = f"has {count:,} tokens instead of {published:,}"
            raise refuse_source(files.name, path, fault, "the published file, or dataset=text for any other")
        if count < 2:
            raise refuse_source(files.name, path, f"has {count} tokens", "a text")
    return _describe(texts, arrays, words, paths)


def _cut(options: Any, root: Path) -> Prepared:
    """Read a text of one piece, and cut it at nine tenths of its characters (rounded down, as nanoGPT does)."""
    sources: list[Path] = []
    if isinstance(options, options_of.PyDoc):
        text = read_topics()
        if options.sha256 not in (None, hash_topics()):
            raise bad_value("dataset.sha256", options.sha256, f"{hash_topics()}, of {describe_topics()}, or null")
    else:
        sources = [(root / SHAKESPEARE).absolute()]
        if not sources[0].is_file():
            raise UsageError(
                f"dataset=tinyshakespeare: not found: {sources[0]}; valid is the input.txt of char-rnn's "
                f"data/tinyshakespeare there (or data.root=DIR where it is)"
            )
        text = read_text("tinyshakespeare", sources[0])
        if (found := hashlib.sha256(text.encode()).hexdigest()) != SHAKESPEARE_SHA256:
            fault = f"has the SHA-256 {found}"
            valid = f"the file with {SHAKESPEARE_SHA256}, or dataset=text"
            raise refuse_source("tinyshakespeare", sources[0], fault, valid)
    middle = len(text) * 9 // 10
    texts = {"train": text[:middle], "test": text[middle:]}
    return _describe(texts, *tokenise(texts, options.tokens), sources)


def _describe(
    texts: Mapping[str, str], arrays: dict[str, np.ndarray], words: Sequence[str] | int, sources: Sequence[Path]
) -> Prepared:
    lengths = {part: len(texts[part]) / len(arrays[part]) for part in texts}
    size = words if isinstance(words, int) else len(words)
    if not isinstance(words, int):
        arrays["vocabulary"] = np.frombuffer("\n".join(words).encode(), dtype=np.uint8)
    return Prepared(arrays, {"classes": size, "characters_per_token": lengths}, sources)


def tokenise(texts: Mapping[str, str], tokens: str) -> tuple[dict[str, np.ndarray], Sequence[str] | int]:
    """Return the parts of a text as token ids, and the vocabulary, or its size if its tokens are no text.

    Args:
        tokens: `words` are separated by blanks, and `<eos>` ends every line; they are numbered by their first
            appearance in the training part, and a word of another part that is not in it becomes `<unk>`. `characters`
            are numbered in their order in Unicode. `bytes` are those of UTF-8. `gpt2` are GPT-2's, by tiktoken.

    Raises:
        UsageError: tiktoken, or its file of tokens, is missing.
    """
    if tokens == "bytes":
        return {part: np.frombuffer(text.encode(), dtype=np.uint8) for part, text in texts.items()}, 256
    if tokens == "gpt2":
        encoding = _load_gpt2()
        return {part: np.array(encoding.encode_ordinary(text), np.uint16) for part, text in texts.items()}, 50_257
    if tokens == "characters":
        numbers = {character: number for number, character in enumerate(sorted(set().union(*texts.values())))}
        parts: Mapping[str, Iterable[str]] = texts
    else:
        numbers = {}
        parts = {part: _split_words(text) for part, text in texts.items()}
    arrays = {}
    for part, units in parts.items():
        if tokens == "words" and part != "train":
            units = (unit if unit in numbers else UNKNOWN for unit in units)
        arrays[part] = np.array([numbers.setdefault(unit, len(numbers)) for unit in units], dtype=np.int32)
    return arrays, list(numbers)


def _split_words(text: str) -> Iterator[str]:
    for line in io.StringIO(text, newline=None):
        yield from line.split()
        yield EOS


def _load_gpt2() -> Any:
    try:
        import tiktoken

        return tiktoken.get_encoding("gpt2")
    except ImportError as error:
        install = "the package tiktoken (`pip install 'gradsweep[tiktoken]'`), or words, characters or bytes"
        raise bad_value("dataset.tokens", "gpt2", install) from error
    except Exception as error:  # of requests, which fetches the tokens at the first use
        raise UsageError(
            f"dataset.tokens=gpt2: tiktoken cannot read GPT-2's tokens ({' '.join(str(error).split())[:120]}); valid "
            f"is a machine with a network, or with their file in the directory TIKTOKEN_CACHE_DIR"
        ) from error


def read_text(name: str, path: Path) -> str:
    """Read a file of a data set as UTF-8.

    Raises:
        UsageError: it is no text.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"dataset={name}: {path}: is not text in UTF-8: {error}") from error


def _markov(options: options_of.SyntheticText) -> Prepared:
    """Generate text as a Markov chain of order two with fixed seeds.

    After any two tokens, `branches` tokens can follow, each half as likely as the previous one.
    """
    size, branches = options.vocabulary, options.branches
    weights = 0.5 ** np.arange(branches)
    weights /= weights.sum()
    ends = np.cumsum(weights)[:-1]
    # successors of (a, b): a random row of a table, so that large vocabularies need no table of all pairs
    table = np.random.RandomState([0]).rand(4096, size).argsort(1)[:, :branches]
    arrays, least = {}, {}
    for part, (name, count) in enumerate(zip(PARTS, (options.train, options.test, options.test), strict=True), 1):
        drawn = np.searchsorted(ends, np.random.RandomState([part]).rand(count), side="right")
        least[name] = float(-np.log(weights[drawn[1:]]).mean())
        choices, rows, before, last = drawn.tolist(), table.tolist(), 0, 0
        ids = np.empty(count, dtype=np.int32)
        for place, choice in enumerate(choices):
            before, last = last, rows[(before * 1009 + last * 9176 + before * last) % 4096][choice]
            ids[place] = last
        arrays[name] = ids
    return Prepared(arrays, {"classes": size, "least_loss": least})
