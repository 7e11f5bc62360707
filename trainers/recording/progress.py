"""Progress lines of rank 0: at the start, about every ten seconds, and after each epoch."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence

from gradsweep.csv_columns import EPOCH_COLUMNS, TEST

EVERY_S = 10.0


def _print(line: str) -> None:
    with contextlib.suppress(OSError):  # the reader may be gone
        print(line, flush=True)


class Progress:
    """A listener of the recorder that prints progress lines.

    Args:
        epochs, steps: of the whole run.
        clock: returns monotonic seconds.
        write: prints a line.
    """

    def __init__(
        self,
        epochs: int,
        steps: int,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], None] = _print,
    ) -> None:
        self._epochs, self._steps, self._clock, self._write = epochs, steps, clock, write
        self._rows: list[Mapping[str, float]] = []  # since the last line
        self._last = clock()

    def begin(self, what: str) -> None:
        """Print the first line."""
        self._write(what)

    def on_steps(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Add the new `rows` of steps.csv; if ten seconds have passed, print a line on all rows since the last line."""
        self._rows.extend(rows)
        if self._rows and self._clock() - self._last >= EVERY_S:
            last, count = self._rows[-1], len(self._rows)
            self._line(
                last,
                f"loss {self._mean('loss'):.4f}{_show('accuracy', self._mean('accuracy'), '.3f')}  "
                f"lr {last['lr']:.4g}  "
                f"{count / max(sum(row['step_s'] for row in self._rows), 1e-9):.1f} it/s  "
                f"{self._mean('sent_bytes') / 1e6:.3f} MB/step",
            )

    def _mean(self, column: str) -> float:
        """Return the mean of a column over all samples since the last line."""
        samples = sum(row["samples"] for row in self._rows)
        return sum(row[column] * row["samples"] for row in self._rows) / samples if samples else math.nan

    def _line(self, row: Mapping[str, float], text: str) -> None:
        self._write(f"epoch {int(row['epoch'])}/{self._epochs}  step {int(row['step'])}/{self._steps}  {text}")
        self._rows.clear()
        self._last = self._clock()

    def on_epoch(self, row: Mapping[str, float]) -> None:
        """Print a line on this row of epochs.csv."""
        local = _show("local accuracy", row.get("local_test_accuracy", math.nan), ".4f")
        apart = f"  consensus distance {row['consensus_distance']:.3g}" if "consensus_distance" in row else ""
        others = [name for name in row if name.startswith(TEST) and name not in EPOCH_COLUMNS]
        own = "".join(_show(name.replace("_", " ", 1), row[name], ".4g") for name in others)
        speed = row["step"] / row["time_s"] if row["time_s"] else math.nan
        self._line(
            row,
            f"loss {row['train_loss']:.4f}{_show('accuracy', row['train_accuracy'], '.3f')}  lr {row['lr']:.4g}  "
            f"{speed:.1f} it/s  {row['sent_bytes'] / row['step'] / 1e6:.3f} MB/step  "
            f"test loss {row['test_loss']:.4f}{_show('test accuracy', row['test_accuracy'], '.4f')}{own}{local}{apart}",
        )


def _show(name: str, value: float, digits: str) -> str:
    """Return a part of a line; nothing for a value that was not measured."""
    return "" if math.isnan(value) else f"  {name} {value:{digits}}"
