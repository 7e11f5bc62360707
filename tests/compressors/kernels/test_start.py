"""What is imported and compiled, and when: a launcher checks configs without torch, a rank compiles
nothing that another process has compiled already, and a machine that can't cache still runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
JIT = ROOT / "compressors" / "kernels" / "cpu" / "primitives" / "jit.py"


def python(code: str, directory: Path = ROOT, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    kept["PYTHONPATH"] = str(directory)
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=directory, env={**kept, **environment}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_checking_configs_loads_nothing_heavy() -> None:
    loaded = python(
        "import sys, compressors.memories\n"
        "from compressors import InvalidParameter\n"
        "for name, cls in compressors.registry().items():\n"
        "    compressors.build(name).payload_bound((300, 20))\n"
        "    compressors.build(name).payload_size((300, 20))\n"
        "[compressors.memories.build(name) for name in compressors.memories.REGISTRY]\n"
        "print(*sys.modules)"
    ).split()
    assert "compressors.memories.base" in loaded and "compressors.quantisation.qsgd_terngrad_onebit" in loaded
    assert not {"torch", "numba", "numpy"} & set(loaded)


def test_only_methods_with_a_kernel_load_numba() -> None:
    """Importing it costs a rank half a second. Small layers need none."""
    loaded = python(
        "import sys, torch, compressors\n"
        "from compressors.kernels import warm_up\n"
        "key = compressors.Key(0, 0, 0, 0)\n"
        "for name in ('none', 'svd'):\n"
        "    compressor = compressors.build(name)\n"
        "    warm_up.warm_up(compressor) if name == 'none' else None\n"
        "    compressor.decompress(compressor.compress(torch.ones(30, 40), key), torch.ones(30, 40), key)\n"
        "print(*sys.modules)"
    ).split()
    assert "compressors.low_rank.linear_algebra.gram_svd" in loaded and "numba" not in loaded


@pytest.mark.thorough
def test_kernels_are_compiled_before_the_first_tensor_and_never_after() -> None:
    """Everything the members call has an explicit signature: a tensor of another kind must not compile."""
    python(
        "import importlib, pkgutil, compressors.kernels.cpu as cpu\n"
        "from numba.core.registry import CPUDispatcher\n"
        "found = 0\n"
        "for info in pkgutil.walk_packages(cpu.__path__, 'compressors.kernels.cpu.'):\n"
        "    module = importlib.import_module(info.name)\n"
        "    for member in vars(module).values():\n"
        "        if isinstance(member, CPUDispatcher) and not member._can_compile:\n"
        "            assert member.signatures, member\n"
        "            found += 1\n"
        "assert found >= 2\n"
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with our jit.py, a helper in one file and a kernel in another."""
    kernels = tmp_path / "site" / "kernels"
    kernels.mkdir(parents=True)
    (kernels / "__init__.py").touch()
    (kernels / "jit.py").write_text(JIT.read_text())
    (kernels / "helping.py").write_text("from kernels.jit import helper\n\n@helper\ndef more(x):\n    return x + 1\n")
    (kernels / "compiled.py").write_text(
        "from kernels.helping import more\nfrom kernels.jit import kernel\n\n"
        '@kernel("int64(int64)")\ndef twice(x):\n    return more(more(x))\n'
    )
    return tmp_path


CALL = (
    "from kernels.compiled import twice\n"
    "stats = twice.stats\n"
    "print(twice(40), sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))"
)


def call(package: Path, home: Path | None = None) -> list[int]:
    """twice(40), loads from the cache, compilations - in a new process with this home directory."""
    home = home or package / "home"
    output = python(
        CALL, package / "site", HOME=str(home), XDG_CACHE_HOME=str(home / ".cache"), PYTHONDONTWRITEBYTECODE="1"
    )
    return [int(number) for number in output.split()]


def cached(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.nbi"))


@pytest.mark.thorough
def test_compiled_once_and_again_when_any_file_changes(package: Path) -> None:
    """numba alone would not notice a changed helper, and go on using the kernel with the old one in it."""
    assert call(package) == [42, 0, 1]
    assert len(cached(package / "site")) == 1
    assert call(package) == [42, 1, 0]
    helping = package / "site" / "kernels" / "helping.py"
    helping.write_text(helping.read_text().replace("x + 1", "x + 5"))
    assert call(package) == [50, 0, 1]
    (package / "site" / "table.py").write_text("")  # beside the package: a table that kernels have compiled into them
    assert call(package) == [50, 0, 1]
    assert call(package) == [50, 1, 0]


def test_a_source_that_cannot_be_written_is_cached_at_home(package: Path) -> None:
    """A file in the place of __pycache__ stops everybody, also root, whom permissions don't stop."""
    (package / "site" / "kernels" / "__pycache__").write_text("")
    assert call(package) == [42, 0, 1]
    assert cached(package / "home")
    assert call(package) == [42, 1, 0]


def test_without_any_place_for_a_cache_it_still_runs(package: Path) -> None:
    (package / "site" / "kernels" / "__pycache__").write_text("")
    nowhere = package / "file"
    nowhere.write_text("")
    assert call(package, home=nowhere)[0] == 42
    assert not cached(package)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["none", "qsgd"])
def test_nothing_of_the_size_of_the_tensor_is_allocated(name: str) -> None:
    """Peak memory of encoding into a message and decoding into a mean grows by less than 5 % of the tensor."""
    grown, size = python(
        "import resource, torch, compressors\n"
        f"compressor, key = compressors.build({name!r}), compressors.Key(0, 0, 0, 0)\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "x, mean = torch.ones(2**24), torch.ones(2**24)\n"
        "message = torch.ones(compressor.payload_bound(x.shape), dtype=torch.uint8)\n"
        "def both(n): compressor.decompress_add(compressor.compress(x[:n], key, message), mean[:n], key, 0.5)\n"
        "both(1000)\n"
        "before = peak()\n"
        "both(2**24)\n"
        "print(peak() - before, 4 * 2**24)\n"
    ).split()
    assert int(grown) < 0.05 * int(size)


def test_ranks_that_start_together_compile_once(package: Path) -> None:
    """A cold cache must not have every rank of a run compile the same kernels on the same cores."""
    environment = {**os.environ, "PYTHONPATH": str(package / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
    together = [
        subprocess.Popen([sys.executable, "-c", CALL], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    results = [[int(number) for number in process.communicate()[0].split()] for process in together]
    assert sorted(results) == [[42, 0, 1], [42, 1, 0], [42, 1, 0]]
