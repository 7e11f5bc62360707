"""What is typed, on its way to Hydra."""

from __future__ import annotations

import re

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from gradsweep.errors import UsageError
from sweep.config import arguments, schema
from trainers.config.run_config import OURS


@pytest.mark.parametrize(("things", "size", "boxes"), [(1, 8, 1), (8, 8, 1), (9, 8, 2), (0, 8, 0)])
def test_ceil(things: int, size: int, boxes: int) -> None:
    assert schema.ceil(things, size) == boxes


def test_ceil_of_nonsense_is_refused() -> None:
    for given in ((8, 0), (8, 2.5), (True, 2), (8,), (8, 2, 1), ()):
        with pytest.raises(UsageError, match="valid is two integers"):
            schema.ceil(*given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("hydra.launcher.nodes=${ceil:${workers},8}", 'hydra.launcher.nodes="${ceil:${workers},8}"'),
        ('hydra.launcher.nodes="${ceil:${workers},8}"', 'hydra.launcher.nodes="${ceil:${workers},8}"'),
        ("a=${workers}", "a=${workers}"),
        ("a=${x},${y}", "a=${x},${y}"),
        ("a=${f:${x},${y}}", 'a="${f:${x},${y}}"'),
        ("-m", "-m"),
        ("hydra.launcher.additional.reservation=x", "++hydra.launcher.additional.reservation=x"),
        ("+hydra.launcher.additional.reservation=x", "+hydra.launcher.additional.reservation=x"),
        ("hydra.launcher.additional={reservation:x}", "++hydra.launcher.additional={reservation:x}"),
        ("sweep.on_end=[a, true ,-1]", 'sweep.on_end=[a, "true" ,"-1"]'),
        (
            """mpi.command=['a,1,b',"\\",1,",${oc.env:A,1,2},x1]""",
            """mpi.command=['a,1,b',"\\",1,",${oc.env:A,1,2},x1]""",
        ),
        ("+mpi.environment.A=1e3", '+mpi.environment.A="1e3"'),
        ("sweep.name=null", "sweep.name=null"),
        ("seed=[1]", "seed=[1]"),
    ],
)
def test_arguments_as_hydra_wants_them(word: str, quoted: str) -> None:
    assert arguments.quote_for_hydra([word]) == [quoted]


def test_words_of_a_program_stay_as_they_are_typed() -> None:
    words = ["true", "False", "1e3", "007", "1_0", "-0.50", "inf", "NaN", "1.2.3", "a"]
    (word,) = arguments.quote_for_hydra([f"sweep.on_end=[{','.join(words)}]"])
    value = OverridesParser.create().parse_override(word).value()
    assert isinstance(value, list) and [getattr(each, "text", each) for each in value] == words


@pytest.mark.parametrize("typed", ["1_0", "TRUE", "0.10"])
@pytest.mark.parametrize("key", ["sweep.name", "+mpi.environment.A"])
def test_texts_that_look_like_something_else_stay_as_they_are_typed(key: str, typed: str) -> None:
    value = OverridesParser.create().parse_override(arguments.quote_for_hydra([f"{key}={typed}"])[0]).value()
    assert getattr(value, "text", value) == typed


@pytest.mark.parametrize(
    ("typed", "ordered"),
    [
        ("a=1 -m b=2", "a=1 b=2 -m"),
        ("a=1 --cfg job b=2 --package model c=3", "a=1 b=2 c=3 --cfg job --package model"),
        ("-m a=1 b=2", "-m a=1 b=2"),
        ("a=1 b=2 --info config", "a=1 b=2 --info config"),
        ("--multirun a=1 b=2 --cfg job", "--multirun a=1 b=2 --cfg job"),
        ("--shell-completion query=bash", "--shell-completion query=bash"),
        ("--help", "--help"),
        ("~a -m +b=2", "~a +b=2 -m"),
        ("", ""),
    ],
)
def test_flags_may_stand_between_overrides(typed: str, ordered: str) -> None:
    assert arguments.put_overrides_first(typed.split()) == ordered.split()


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (
            "a=1 --jsn b=2",
            "--jsn: unknown; did you mean --json. valid is key=value, --quiet, .* and the flags of --hydra-help",
        ),
        ("--cfg jb", "argument --cfg/-c: invalid choice: 'jb' .*"),
        ("a=1 --cfg", "argument --cfg/-c: expected one argument"),
    ],
)
def test_a_wrong_flag_is_one_line(typed: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError) as error:
        arguments.put_overrides_first(typed.split())
    assert re.fullmatch(line, str(error.value)) and capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("trainer=script ddp.hook=none,fp16 script.lr=0.1", "trainer=script ++ddp.hook=none,fp16 ++script.lr=0.1"),
        ("ddp={hook:fp16} trainer=sgd,script", "++ddp={hook:fp16} trainer=sgd,script"),
        ("-m trainer=script workers=2 network.latency=1ms", "-m trainer=script workers=2 network.latency=1ms"),
        (
            "trainer=script modle.depth=3 lr=0.1 hydra.sweep.dir=x",
            "trainer=script modle.depth=3 lr=0.1 hydra.sweep.dir=x",
        ),
        ("trainer=script +ddp.hook=none", "trainer=script +ddp.hook=none"),
        ("trainer=sgd ddp.hook=none", "trainer=sgd ddp.hook=none"),
    ],
)
def test_groups_of_a_script_need_no_plus(typed: str, given: str) -> None:
    assert " ".join(arguments.open_script_groups(typed.split(), OURS)) == given


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("-m model=gpt,lstm model.layers=2", "-m model=gpt,lstm model.layers=choice(2)"),
        ("--multirun experiment=a,b +model.x=[1,2] seed=3", "--multirun experiment=a,b +model.x=choice([1,2]) seed=3"),
        ("-m experiment=a,b model.layers=2,3 model={x:1}", "-m experiment=a,b model.layers=2,3 model={x:1}"),
        ("-m experiment=a,b ~model.layers model.x=", "-m experiment=a,b ~model.layers model.x="),
        ("-m model=gpt,lstm dataset.bptt=2 sweep.name=x", "-m model=gpt,lstm dataset.bptt=2 sweep.name=x"),
        ("model=gpt,lstm model.layers=2", "model=gpt,lstm model.layers=2"),
    ],
)
def test_options_of_swept_groups_are_left_to_the_points(typed: str, given: str) -> None:
    assert " ".join(arguments.leave_to_points(typed.split(), ["model", "dataset", "experiment"])) == given
