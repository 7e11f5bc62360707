"""`python -m compressors`: what it prints is true, what it checks is found, what it cannot do it says in one line."""

from __future__ import annotations

import csv
import dataclasses
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from compressors import Compressor, Key, Law, aliases, build, presets, registry
from compressors.__main__ import main
from compressors.commands import bench, bench_timing, check, descriptions, measured_laws, show, single_worker
from compressors.commands import list as listing
from compressors.commands.measured_laws import Draws, Level
from compressors.commands.method_specs import format_spec, parse
from compressors.commands.sample_tensors import gaussian
from compressors.conformance.cases import every_compressor
from compressors.kernels import backend
from gradsweep.cli import markdown_sections
from gradsweep.errors import UsageError
from tests.conftest import ROOT

PAGE = ROOT / "docs/reference/compressors.md"


pytestmark = pytest.mark.usefixtures("no_terminal")


# Names and options


@every_compressor
def test_a_label_is_what_can_be_typed(compressor: Compressor) -> None:
    assert parse(format_spec(compressor)) == compressor


def test_options_are_read_as_in_a_config() -> None:
    assert parse("qsgd,levels=1,norm=l2") == build("qsgd", levels=1, norm="l2")
    chained = build("topk", values="qsgd", values_options={"levels": 3, "norm": "l2"})
    assert parse("topk,values_options.norm=l2,values=qsgd,values_options.levels=3") == chained
    assert format_spec(chained) == "topk,values=qsgd,values_options.levels=3,values_options.norm=l2"
    assert parse("svd,budget=2.5") == build("svd", budget=2.5)
    assert parse("svd,budget=null") == build("svd")
    for alias, name in aliases().items():
        assert parse(alias) == build(name)
    for preset, (name, options) in presets().items():
        assert parse(preset) == build(name, **options)
    assert parse("random_dithering,levels=3") == build("qsgd", levels=3, norm="l2", bucket_size=None)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["show", "qsgdd"],
            "name=qsgdd: did you mean qsgd. valid is one of the .* that `python -m compressors list` lists",
        ),
        (
            ["check", "nothing_like_it"],
            "name=nothing_like_it: valid is one of the .* that `python -m compressors list` lists",
        ),
        (["show", "qsgd,levels=0"], "qsgd: levels=0: valid is an integer from 1"),
        (["show", "qsgd,level=1"], "qsgd: level=1: did you mean levels. valid is one of the keys levels"),
        (["show", "qsgd,levels"], "levels is not of the form option=value"),
        (["show", "qsgd,"], "an empty option is not of the form option=value"),
        (["check", "qsgd,levels=3,levels=5"], "qsgd,levels=3,levels=5: levels is given more than once"),
        (["show", "qsgd,name=topk"], "qsgd,name=topk: name is no option"),
        (["show", "qsgd,levels=null"], "qsgd: levels=null: valid is an integer from 1"),
        (["show", "terngrad,clip=" + 400 * "9"], r"terngrad: clip=9+\.\.\.: valid is a finite number from 0 up"),
        (["show", "terngrad,clip=" + 5000 * "9"], "terngrad: clip=inf: valid is a finite number from 0 up"),
        (["show", "random_ditherin"], "did you mean random_dithering"),
        (["show", "a\nb"], r"name='a\\nb': valid is"),
        (["check"], "check: give names, or --all"),
        (["check", "--all", "qsgd"], "check: give names, or --all"),
        (["check", "qsgd", "--error-level", "2"], "--error-level 2: valid is a probability"),
        (["bench", "none", "--repeats", "0"], "--repeats 0: valid is a positive integer"),
        (["bench", "none", "--threads", "0"], "--threads 0: valid is an integer from 1 to 1024"),
        (["bench", "none", "--threads", "100000"], "--threads 100000: valid is an integer from 1 to 1024"),
        (["bench", "none", "--elements", "1e30"], "--elements 1e30: valid is an integer from 1 to 1000000000000"),
        (
            ["bench", "none", "--model", "resnet18", "--elements", "5"],
            "--elements 5: valid with --model flat, which is one tensor of that size",
        ),
        (["bench", "none", "--output", "x", "--into", "y"], "--into: not allowed with argument --output"),
        (["bench", "none", "--into", str(ROOT / "README.md")], "README.md: has no part between"),
        (["bench", "none", "--output", str(ROOT / "README.md")], "README.md: File exists"),
        (["bench", "none", "--output", "/proc/nowhere"], "/proc/nowhere: No such file or directory"),
        (["check", "none", "--draws", "29"], "--draws 29: valid is an integer from 30 up"),
        (["bench", "none", "--model", "vgg"], "--model vgg: valid is one of flat, resnet18"),
        (["bench", "none", "--kernels", "triton"], "kernels=triton: valid is"),
        (["list", "none", "--into", "nowhere/page.md"], "nowhere/page.md: No such file or directory"),
        (["list", "none", "--into", str(ROOT / "README.md")], "README.md: has no part between"),
        (["frobnicate"], "frobnicate: valid is one of list, show, check, bench"),
        ([], "required: list"),
    ],
)
def test_what_cannot_work_is_one_line_and_exit_status_2(
    command: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert main(command) == 2
    except SystemExit as end:
        assert end.code == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and err.startswith("python -m compressors")
    assert re.search(message, err), err


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be measured in this test."""
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("measured"))


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("where", [["--into", "page.md"], ["--output", "file"], ["--output", "file/below"]])
def test_bench_knows_where_to_write_before_it_measures(
    where: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page.md").write_bytes(b"\xff\xfe")
    Path("file").touch()
    assert main(["bench", "none", *where]) == 2
    assert re.fullmatch(r"python -m compressors: (page.md|file)[^\n]*: [^\n]*\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("error", "told"),
    [(MemoryError(), True), (RuntimeError("not enough memory: 4 TB"), True), (RuntimeError("a fault"), False)],
)
def test_too_much_for_the_memory_is_one_line(
    error: Exception, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(bench, "measure", fail)
    command = ["bench", "none", "--elements", "1e9", "--output", str(tmp_path)]
    if told:
        assert main(command) == 2
        assert capsys.readouterr().err == "python -m compressors: --elements 1000000000: more than the memory holds\n"
    else:
        with pytest.raises(RuntimeError, match="a fault"):
            main(command)


def test_ctrl_c_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(listing, "build_table", interrupt)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "python -m compressors: interrupted\n"


COMMAND = [sys.executable, "-m", "compressors", "show", "none"]


def test_a_reader_that_has_seen_enough_ends_it_quietly() -> None:
    with subprocess.Popen(COMMAND, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_output_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(COMMAND, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "python -m compressors: standard output: No space left on device\n")
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND], cwd=ROOT, capture_output=True, text=True)
    assert (closed.returncode, closed.stderr) == (2, "python -m compressors: standard output is closed\n")


def test_help_and_errors_come_without_torch() -> None:
    code = (
        "import sys\nfrom compressors.__main__ import main\n"
        "assert main(['show', 'nothing']) == 2\n"
        "assert not {'torch', 'numba', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


# list and show


@pytest.mark.thorough
def test_the_table_of_the_docs_is_the_programs(tmp_path: Path) -> None:
    """To the last digit: also where a size is measured, the noise is the same everywhere."""
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["list", "--into", str(page)]) == 0
    written = markdown_sections.read(page, listing.PART).splitlines()
    assert markdown_sections.read(PAGE, listing.PART).splitlines() == written
    assert page.read_bytes() == PAGE.read_bytes()


def test_list_prints_or_fills_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "none", "qsgd"]) == 0
    printed = capsys.readouterr().out
    assert "exact" in printed and "unbiased, omega 2.61" in printed and "4.06" in printed
    page = tmp_path / "page.md"
    parts = [f"<!-- {part}: how -->\n\nold\n\n<!-- end of {part} -->\n" for part in (listing.REPORTED, listing.PART)]
    page.write_text(f"{parts[0]}before\n{parts[1]}after\n")
    for _ in range(2):
        assert main(["list", "qsgd", "--into", str(page)]) == 0
        text = page.read_text()
        assert "\nbefore\n<!-- methods: how -->\n\n| method |" in text
        assert "| `qsgd` | ImageNet" in markdown_sections.read(page, listing.REPORTED)
        assert text.endswith("|\n\n<!-- end of methods -->\nafter\n") and "old" not in text
    page.write_text(2 * page.read_text())
    with pytest.raises(UsageError, match="several"):
        markdown_sections.fill(page, "methods", "")


@pytest.mark.parametrize("name", registry())
def test_show_has_everything(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", name]) == 0
    printed = capsys.readouterr().out
    compressor = build(name)
    for field in dataclasses.fields(compressor):
        assert field.name in printed and field.metadata["valid"].words in printed
    assert compressor.paper in printed and compressor.reported in printed
    assert descriptions.format_payload_size(compressor, (512, 512, 3, 3)) in printed
    assert (type(compressor).__doc__ or "").splitlines()[0] in printed


@pytest.mark.parametrize("name", registry())
def test_every_option_has_a_remark_in_its_config(name: str) -> None:
    remarks = show.read_remarks(show.CONF / "compressor" / f"{name}.yaml")
    for field in dataclasses.fields(registry()[name]):
        assert remarks.get(field.name), field.name


def test_remarks_go_on_below_and_need_no_file(tmp_path: Path) -> None:
    page = tmp_path / "x.yaml"
    page.write_text("# about\ndefaults: [a, _self_]\none: 1   # first\n         # and second\ntwo: '#'\n")
    assert show.read_remarks(page) == {"defaults": "", "one": "first and second", "two": ""}
    assert show.read_remarks(tmp_path / "none.yaml") == {}


def test_show_names_the_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", "qsgd"])
    assert re.search(r"qsgd +numba.*torch", capsys.readouterr().out)
    main(["show", "none"])
    assert "torch's own operations only" in capsys.readouterr().out


# check


def test_check_passes_what_keeps_its_promises(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "none", "qsgd,levels=1", "svd", "--draws", "60"]) == 0
    printed = capsys.readouterr().out
    assert printed.count(" ok ") and "WRONG" not in printed
    assert "qsgd,levels=1" in printed and "once in 1000000 calls" in printed


QSGD = registry()["qsgd"]
LEVEL = Level(1e-6, measured_laws.count_comparisons(1))


class Shrinking(QSGD):  # type: ignore[valid-type, misc]
    """Loses 5 %."""

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        super().decompress_add(payload, out, key, 0.95 * weight)


class Boasting(QSGD):  # type: ignore[valid-type, misc]
    """Promises less variance than there is."""

    def law(self, shape: Sequence[int]) -> Law:
        return Law(unbiased=True, omega=0.02 * (super().law(shape).omega or 0))


class Contracting(QSGD):  # type: ignore[valid-type, misc]
    """Promises to lose next to nothing."""

    def law(self, shape: Sequence[int]) -> Law:
        return Law(delta=0.9999, kappa=1e-3)


class Stuck(type(build("topk"))):  # type: ignore[misc]
    """Deterministic, and says that it is unbiased."""

    def law(self, shape: Sequence[int]) -> Law:
        return Law(unbiased=True)


class Short(QSGD):  # type: ignore[valid-type, misc]
    """Declares a byte too few."""

    def payload_size(self, shape: Sequence[int]) -> int:
        return self.payload_bound(shape) - 1


class Forgetful(QSGD):  # type: ignore[valid-type, misc]
    """Draws from the global generator."""

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        return super().compress(x, dataclasses.replace(key, seed=int(torch.randint(1000, ()))), out)


class Silent(QSGD):  # type: ignore[valid-type, misc]
    """Makes zeros of NaN."""

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        return super().compress(x.nan_to_num(0, 0, 0), key, out)


class Inventing(QSGD):  # type: ignore[valid-type, misc]
    """Makes ones of zeros."""

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        return super().compress(x + (not x.any()), key, out)


class TwoFaced(QSGD):  # type: ignore[valid-type, misc]
    """Does something else with the kernels of plain torch."""

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        return super().compress(x, dataclasses.replace(key, seed=int(backend.select("qsgd", "cpu") == "torch")), out)


class Failing(QSGD):  # type: ignore[valid-type, misc]
    """Raises."""

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("compressor", "wrong"),
    [
        (Shrinking(), {"biased"}),
        (Boasting(), {"omega"}),
        (Contracting(), {"delta", "kappa"}),
        (Stuck(), {"biased"}),
        (Short(), {"payload"}),
        (Forgetful(), {"payload", "kernels"}),
        (Silent(), {"nan"}),
        (Inventing(), {"zeros"}),
        (TwoFaced(), {"kernels"}),
        (Failing(), {"RuntimeError", "kernels", "zeros, NaN"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Compressor) else "",
)
def test_check_finds_what_is_wrong_and_nothing_else(compressor: Compressor, wrong: set[str]) -> None:
    found = check.check(compressor, 200, LEVEL)
    starts = {next((word for word in wrong if text.startswith(word)), text) for text in found.wrong}
    assert starts == wrong, found.wrong
    assert set(found.cells) == set(check.CHECKS)


def test_a_broken_promise_is_exit_status_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "parse_all", lambda names: [Shrinking()])
    assert check.run(["qsgd"], 100, 1e-6) == 1
    printed = capsys.readouterr().out
    assert "WRONG" in printed and "biased: normal" in printed


# The tests of `check` themselves: as seldom wrong as they say


def drawn(q: torch.Tensor, x: torch.Tensor, law: Law, values: str = "one-hot") -> Draws:
    return Draws(values, x.double(), q.double(), law)


def rare(probability: float, draws: int, seed: int, size: int = 50) -> Draws:
    """One element that is kept with a small probability and multiplied by its inverse."""
    x = torch.zeros(size)
    x[3] = 2.0
    kept = torch.rand(draws, generator=torch.Generator().manual_seed(seed)) < probability
    return drawn(kept[:, None] * x / probability, x, Law(unbiased=True, omega=1 / probability - 1))


@pytest.mark.parametrize("probability", [0.001, 0.01, 0.05, 0.5])
def test_rare_events_raise_no_false_alarm(probability: float) -> None:
    """A z-test alone would find a bias of 2 in 300 draws that are all zero, and some in most of the others."""
    for seed in range(300):
        draws = rare(probability, 300, seed)
        assert not measured_laws.measure_bias(draws, Level(1e-3, measured_laws.DIRECTIONS))[1]
        assert not measured_laws.measure_excess(draws, draws.law.omega or 0, Level(1e-4, 1), is_random=True)[1]


@pytest.mark.parametrize("probability", [0.001, 0.01, 0.05, 0.5])
def test_a_contraction_that_keeps_the_only_element_seldom_raises_no_false_alarm(probability: float) -> None:
    for seed in range(300):
        draws = rare(probability, 40, seed)
        kept = dataclasses.replace(draws, q=draws.q * probability, law=Law(delta=probability))
        assert not measured_laws.measure_excess(kept, 1 - probability, Level(1e-4, 1), is_random=True)[1]
    assert measured_laws.measure_excess(
        dataclasses.replace(kept, q=0 * kept.q), 1 - probability, Level(1e-4, 1), is_random=False
    )[1]


def test_an_element_that_never_comes_is_found_when_omega_says_it_should() -> None:
    draws = rare(0.5, 300, 0)
    assert measured_laws.measure_bias(dataclasses.replace(draws, q=torch.zeros_like(draws.q)), LEVEL)[1]
    seldom = dataclasses.replace(draws, q=torch.zeros_like(draws.q), law=Law(unbiased=True, omega=999.0))
    assert not measured_laws.measure_bias(seldom, LEVEL)[1]


def test_z_is_that_of_a_normal_number() -> None:
    """Of unbiased noise, as many |z| exceed 2 as the normal distribution says, also with few draws."""
    noise = torch.randn(400, 8, 500, generator=torch.Generator().manual_seed(1)).double()
    t = noise.mean(1).abs() / noise.std(1) * math.sqrt(8)
    assert float((measured_laws._convert_to_normal(t, 7) > 2).double().mean()) == pytest.approx(0.0455, abs=0.002)
    assert Level(0.05, 1).z == pytest.approx(1.96, abs=0.001)


# bench


def test_bench_prints_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["bench", "none", "qsgd,levels=1", "topk", "--elements", "5000", "--repeats", "2", "--kernels", "torch"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    (folder,) = (tmp_path / "output" / "bench").iterdir()
    assert f"output/bench/{folder.name}/bench.csv" in printed and "memory copy of 0 MB" in printed
    rows = list(csv.DictReader((folder / "bench.csv").open()))
    assert [row["method"] for row in rows] == ["memory copy", "none", "qsgd,levels=1", "topk"]
    assert {row["machine"] for row in rows} == {f"{bench_timing.describe_machine(1)}, kernels torch"}
    assert ", kernels torch; 2 interleaved" in printed
    assert {row["kernels"] for row in rows} == {"torch"}
    assert float(rows[2]["bits_per_element"]) == pytest.approx(
        8 * build("qsgd", levels=1).payload_bound((5000,)) / 5000
    )
    assert rows[1]["pays_below_bit_per_s"] == "" and float(rows[1]["error"]) == 0.0
    both = float(rows[3]["encode_s"]) + float(rows[3]["decode_s"])
    saved = 8 * (20000 - int(rows[3]["payload_bytes"]))
    assert float(rows[3]["pays_below_bit_per_s"]) == pytest.approx(saved / both, rel=0.5)
    assert (folder / "bench.png").read_bytes().startswith(b"\x89PNG")
    page = tmp_path / "page.md"
    page.write_text("<!-- bench: how -->\n<!-- end of bench -->\n")
    assert main(["bench", "none", "--elements", "5000", "--repeats", "1", "--into", str(page)]) == 0
    assert "| none | flat | 32 | 0 |" in page.read_text()
    assert len(list((tmp_path / "output" / "bench").iterdir())) == 1


def test_a_method_pays_where_both_messages_take_the_same_time() -> None:
    dense, payload, seconds = 1000, 100, 2.0
    bandwidth = bench.find_break_even(dense, payload, seconds)
    assert bandwidth is not None
    assert seconds + 8 * payload / bandwidth == pytest.approx(8 * dense / bandwidth)
    assert bench.find_break_even(100, 100, 1.0) is None


@pytest.mark.thorough
@pytest.mark.parametrize("name", registry())
def test_every_method_can_be_timed(name: str) -> None:
    """On two units, with what it remembers, agrees on and reduces together; the error is that of Q alone."""
    compressor = build(name)
    room = bench_timing.Gradients([(40, 30), (600,)])
    worker = bench_timing.Worker(compressor, room)
    if worker.step == 1 and not compressor.scale_free:
        one = single_worker.copy_without_state(compressor)
        kept = [
            one.decompress(single_worker.encode(one, x, Key(0, 0, 1, unit)), x, Key(0, 0, 1, unit))
            for unit, x in enumerate(room.steps[1])
        ]
        missing = torch.cat([(q - x).view(-1) for q, x in zip(kept, room.steps[1], strict=True)]).norm()
        assert worker.error == pytest.approx(float(missing / room.flat[1].norm()), rel=1e-3, abs=1e-6)
    for _ in range(3):
        worker.encode()
        worker.decode_and_finish()
    assert 0 <= worker.payload_bytes <= sum(compressor.payload_bound(shape) for shape in room.shapes)
    assert room.mean.isfinite().all()


def test_methods_for_layers_get_layers_and_the_others_what_was_asked_for() -> None:
    shapes = bench_timing.resnet18_shapes()
    assert sum(math.prod(shape) for shape in shapes) == 11_164_352
    assert len(shapes) == 21


def test_operations_are_interleaved_and_the_first_time_does_not_count() -> None:
    calls: list[str] = []
    times = bench_timing.time_interleaved(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, lambda: calls.append("copy"), repeats=3
    )
    assert calls == ["copy", "a", "b"] * 4
    assert {len(one.seconds) for one in times.values()} == {3}
    two = bench_timing.Times([2.0, 6.0, 4.0], [1.0, 2.0, 4.0])
    assert (two.median, two.ratio) == (4.0, 2.0)
    assert (two + two).seconds == [4.0, 12.0, 8.0]
    assert two.compare_with([4.0, 3.0, 2.0]) == 2.0


def test_gradients_take_turns_and_share_their_room() -> None:
    room = bench_timing.Gradients([(3, 4), (5,)])
    assert room.bytes == 68 and [x.shape for x in room.means] == [(3, 4), (5,)]
    assert not torch.equal(*room.flat)
    room.means[1].fill_(1.0)
    assert float(room.mean.sum()) == 5.0
    first, second = (room.make_messages(build("none")) for _ in range(2))
    assert [one.data_ptr() for one in first] == [one.data_ptr() for one in second]
    assert float(room.flat[0].std()) == pytest.approx(float(gaussian((17,)).std()) * 1e-3, rel=1e-5)
