"""The config of a run that a program of the user trains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gradsweep.errors import UsageError
from gradsweep.signature import signature
from tests.trainers.configs import compose_config
from trainers.rules.idle_options import find_idle
from trainers.rules.resolve import resolve


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compose(*command: str, directory: str | None = None, **changes: Any) -> dict[str, Any]:
    trainer = {"name": "script", "command": list(command), "directory": directory}
    own = {key: changes.pop(key) for key in ("ddp", "lr", "modle", "sweep", "race") if key in changes}
    return {**compose_config(trainer=trainer, **changes), **own}


def refuse(config: dict[str, Any]) -> str:
    with pytest.raises(UsageError) as error:
        resolve(config)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_scripts_config_has_no_options_of_our_training(here: Path) -> None:
    found = resolve(compose("python", "train.py", ddp={"hook": "fp16"}, workers=4, sweep={"pack": False}))
    assert found["ddp"] == {"hook": "fp16"} and found["workers"] == 4 and found["compressor"] == {"name": "none"}
    assert found["trainer"] == {"name": "script", "command": ["python", "train.py"], "directory": str(here)}
    assert not {"model", "dataset", "optimizer", "exchange", "batch", "policy", "memory"} & found.keys()


def test_where_a_script_starts_is_not_in_its_signature_and_its_keys_are(here: Path) -> None:
    (here / "there").mkdir()
    (here / "there" / "train.py").write_text("")
    configs = [
        compose("python", "train.py", ddp={"hook": "fp16"}),
        compose("python", "train.py", directory="there", ddp={"hook": "fp16"}),
        compose("python", "train.py", ddp={"hook": "none"}),
        compose("python", "./train.py", ddp={"hook": "fp16"}),
    ]
    first, moved, *others = (signature(resolve(config)) for config in configs)
    assert first == moved and len({first, *others}) == 3


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({}, r"trainer.command=\[\]: valid is a program and its arguments, such as .*"),
        (
            {"command": ["no_such_program"]},
            r"trainer.command=\[no_such_program\]: valid is .* not found beside .* PATH",
        ),
        ({"command": ["./no.sh"]}, r"trainer.command=\[./no.sh\]: valid is .*; ./no.sh is not found in /.*"),
        (
            {"command": ["python", "trian.py"]},
            r"trainer.command=\[python,trian.py\]: did you mean train.py\? valid is a script that exists in /.*",
        ),
        ({"directory": "nowhere"}, "trainer.directory=/.*/nowhere: valid is a directory that exists"),
        ({"lr": 0.1}, "lr=0.1: unknown key; valid is a key in a group of the script, as script.lr"),
        (
            {"modle": {"depth": 3}},
            r"modle=\{'depth': 3\}: unknown key; did you mean model\? valid is another name for a group of the script",
        ),
        ({"network": "real"}, "network=real: valid is none or an emulated one with trainer=script"),
        ({"sweep": {"pack": True}}, "sweep.pack: valid is false with trainer=script, .*"),
        ({"race": {"mode": "only"}}, "race=only: valid is auto or off with trainer=script, .*"),
        ({"workers": 0}, "workers=0: valid is an integer from 1 to 4096"),
    ],
)
def test_a_script_that_cannot_start_is_refused_in_a_line(here: Path, config: dict[str, Any], line: str) -> None:
    command = config.pop("command", [] if not config else ["python", "train.py"])
    said = refuse(compose(*command, **config))
    assert re.fullmatch(line, said), said


def test_options_of_our_training_have_no_effect_on_a_script(here: Path) -> None:
    config = resolve(compose("python", "train.py", ddp={"hook": "fp16"}))
    words = find_idle(config, ["compressor", "model.depth", "checkpoint.keep", "race.seconds", "sweep.remeasure"])
    assert words["compressor"].startswith("left out with trainer=script, or a key of the script's own, such as script.")
    assert words["model.depth"].endswith(" script.depth") and len(words) == 5
    kept = ["workers", "threads_per_worker", "device", "seed", "epochs", "trainer", "trainer.command", "ddp.hook"]
    assert find_idle(config, [*kept, "mpi.command", "sweep.retries", "race", "experiment", "hydra/launcher"]) == {}


def test_the_same_keys_stay_refused_without_a_script(here: Path) -> None:
    with pytest.raises(UsageError, match="ddp={'hook': 'fp16'}: unknown key; "):
        resolve({**compose_config(), "ddp": {"hook": "fp16"}})
