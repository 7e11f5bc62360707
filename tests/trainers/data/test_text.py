"""Text from files of words."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from trainers import data
from trainers.config import run_config
from trainers.data import text
from trainers.options import datasets as options
from trainers.options import python_topics
from trainers.rules.resolve import resolve
from trainers.tasks.classification import Language

SMALL = {"name": "gpt", "layers": 1, "heads": 2, "width": 32}
LINES = {
    "train": " \n = The Title = \n the cat <unk> the mat\n",
    "valid": "the dog sat\n",
    "test": "mat the\ncat\n",
}


def write(root: Path, files: text.Files) -> None:
    folder = root / files.folder
    folder.mkdir(parents=True)
    for part, lines in LINES.items():
        (folder / files.pattern.format(part)).write_text(lines, encoding="utf-8")


@pytest.mark.parametrize(
    ("dataset", "name"),
    [(options.WikiText2(), "WIKITEXT2"), (options.PennTreebank(), "PTB"), (options.TextFiles(folder="here"), "")],
)
def test_words_are_numbered_as_they_appear(
    dataset: options.Text, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name:
        monkeypatch.setattr(text, name, dataclasses.replace(getattr(text, name), tokens=(12, 4, 5)))
    write(tmp_path, text.find_files(dataset))
    prepared = data.map_arrays(dataset, tmp_path)
    words = bytes(prepared.arrays["vocabulary"]).decode().split("\n")
    assert words == ["<eos>", "=", "The", "Title", "the", "cat", "<unk>", "mat"]
    assert prepared.facts["classes"] == len(words)
    said = {part: " ".join(words[number] for number in prepared.arrays[part]) for part in LINES}
    assert said == {
        "train": "<eos> = The Title = <eos> the cat <unk> the mat <eos>",
        "valid": "the <unk> <unk> <eos>",
        "test": "mat the <eos> cat <eos>",
    }


def test_a_vocabulary_without_unknown_words_gets_them_where_they_are_needed(tmp_path: Path) -> None:
    for part, lines in (("train", "a b\n"), ("valid", "a c\n"), ("test", "b\n")):
        (tmp_path / f"{part}.txt").write_text(lines)
    prepared = data.map_arrays(options.TextFiles(folder="."), tmp_path)
    assert bytes(prepared.arrays["vocabulary"]).decode().split("\n") == ["a", "b", "<eos>", "<unk>"]
    assert prepared.arrays["valid"].tolist() == [0, 3, 2]


def test_the_feed_of_a_run(tmp_path: Path) -> None:
    changes = {"batch": {"size": 5}, "data": {"root": str(tmp_path)}}
    for evaluate, held_out in (("test", "test"), ("valid", "valid")):
        dataset = {"name": "synthetic_text", "train": 208, "test": 40, "bptt": 9, "evaluate": evaluate}
        run = run_config.parse(compose_config(dataset=dataset, workers=2, **changes))
        feeds = [data.build_feed(run, worker, 2) for worker in range(2)]
        arrays = data.map_arrays(run.dataset, tmp_path).arrays
        assert feeds[0].shape == (9,) and feeds[0].classes == 32
        assert feeds[0].train.steps == 5 and run.compute_epochs(feeds[0].samples).steps == 5 * run.epochs
        predicted = np.concatenate([labels.flatten() for feed in feeds for _, labels in feed.read_test_set()])
        assert sorted(predicted) == sorted(arrays[held_out][1:])


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: (folder / "wiki.test.tokens").unlink(), "not found: wiki.test.tokens in {folder}; valid is"),
        (
            lambda folder: (folder / "wiki.train.tokens").write_text(LINES["train"][:-6]),
            "{folder}/wiki.train.tokens: has 11 tokens instead of 12; valid is the published file, or dataset=text",
        ),
        (
            lambda folder: (folder / "wiki.valid.tokens").write_bytes(b"the \xff\xfe"),
            "{folder}/wiki.valid.tokens: is not text in UTF-8: ",
        ),
    ],
)
def test_files_that_are_not_the_known_ones(
    harm: object, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "WIKITEXT2", dataclasses.replace(text.WIKITEXT2, tokens=(12, 4, 5)))
    write(tmp_path, text.WIKITEXT2)
    assert callable(harm)
    harm(tmp_path / "wikitext-2")
    with pytest.raises(UsageError) as error:
        data.prepare(options.WikiText2(), tmp_path)
    assert str(error.value).startswith(f"dataset=wikitext2: {message.format(folder=tmp_path / 'wikitext-2')}")
    assert "\n" not in str(error.value)


def test_a_text_of_one_token(tmp_path: Path) -> None:
    for part in LINES:
        (tmp_path / f"{part}.txt").write_text("\n")
    with pytest.raises(UsageError, match=r"dataset=text: .*train.txt: has 1 tokens; valid is a text"):
        data.prepare(options.TextFiles(folder="."), tmp_path)


def test_pydoc_is_the_text_of_this_python(tmp_path: Path) -> None:
    resolved = resolve(compose_config(dataset="pydoc", model=SMALL))
    digest = hashlib.sha256(python_topics.read_topics().encode()).hexdigest()
    assert resolved["dataset"]["sha256"] == digest, "so it is in the signature"
    prepared = data.map_arrays(options.PyDoc(sha256=digest), tmp_path)
    characters = bytes(prepared.arrays["vocabulary"]).decode()[::2]
    parts = [prepared.arrays[part] for part in ("train", "test")]
    assert "".join(characters[number] for number in np.concatenate(parts)) == python_topics.read_topics()
    assert len(parts[0]) == sum(map(len, parts)) * 9 // 10 > 300_000
    with pytest.raises(UsageError, match=rf"dataset\.sha256=00: valid is {digest}, of the topics of Python 3\."):
        data.prepare(options.PyDoc(sha256="00"), tmp_path)


def test_tiny_shakespeare_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="dataset=tinyshakespeare: not found: .*input.txt"):
        data.prepare(options.TinyShakespeare(), tmp_path)
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / text.SHAKESPEARE).write_text("To be, or not to be\n")
    with pytest.raises(UsageError, match="input.txt: has the SHA-256 [0-9a-f]{64}; valid is the file with 86c4e6aa"):
        data.prepare(options.TinyShakespeare(), tmp_path)
    monkeypatch.setattr(text, "SHAKESPEARE_SHA256", hashlib.sha256(b"To be, or not to be\n").hexdigest())
    prepared = data.map_arrays(options.TinyShakespeare(), tmp_path)
    assert [len(prepared.arrays[part]) for part in ("train", "test")] == [18, 2]
    assert prepared.facts == {"classes": 10, "characters_per_token": {"train": 1.0, "test": 1.0}}


def test_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"train": "né né\n", "test": "on\n"}
    arrays, vocabulary = text.tokenise(texts, "characters")
    assert vocabulary == ["\n", " ", "n", "o", "é"] and arrays["test"].tolist() == [3, 2, 0]
    arrays, size = text.tokenise(texts, "bytes")
    assert size == 256 and bytes(arrays["train"]).decode() == texts["train"]
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(UsageError, match=r"dataset\.tokens=gpt2: valid is the package tiktoken"):
        text.tokenise(texts, "gpt2")


def test_what_is_known_of_a_generated_text_is_its_least_loss(tmp_path: Path) -> None:
    """The mean of -ln p over the test set is near the entropy of a token: here of the weights 8, 4, 2, 1."""
    config = run_config.parse(
        compose_config(
            dataset={"name": "synthetic_text", "order": "windows"}, model=SMALL, data={"root": str(tmp_path)}
        )
    )
    feed = data.build_feed(config, 0, 1)
    weights = np.array([8, 4, 2, 1]) / 15
    assert feed.least_loss == pytest.approx(-(weights * np.log(weights)).sum(), abs=0.02)
    assert feed.characters_per_token is None


def test_a_model_with_a_state_reads_streams() -> None:
    line = "model=lstm with dataset.order=windows: its state would go on from one text to another; valid is"
    with pytest.raises(UsageError, match=line):
        resolve(compose_config(dataset="pydoc", model="lstm"))


def test_perplexity_and_bits_per_character() -> None:
    scores = Language(characters_per_token=4.0).summarise(
        {"loss": np.array(math.log(16) * 5), "correct": np.array(2.0), "labels": np.array(5.0)}
    )
    assert scores.metrics == pytest.approx({"perplexity": 16, "bits_per_character": 1})
    assert scores.accuracy == 0.4
