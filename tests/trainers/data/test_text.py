"""Text from files of words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from trainers import data
from trainers.config import run_config
from trainers.data import text
from trainers.options import datasets as options

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
