"""Write the logs of an attempt, as a program of its own, from the pipes of its processes to files with a limit.

    python -I -S log_capture.py LIMIT SCRATCH PIPE FILE [PIPE FILE ...]

LIMIT is the limit of each file in bytes; PIPE and FILE are open descriptors. When the write ends of all pipes are
closed, the program removes the directory SCRATCH and ends. It outlives a killed launcher, so that the last output of
ranks is not lost. If the disk is full it continues to read, so that no rank blocks on its log. It imports only the
standard library, to start quickly.

If the output exceeds the limit, its middle is removed, at line breaks if possible. The file keeps the beginning, of
half the limit, and the latest output, of at least about a quarter of the limit; a line between them says how much is
missing. So the file becomes shorter at times, and is never larger than the limit.
"""

from __future__ import annotations

import os
import select
import signal
import sys

BLOCK = 1 << 16


class Log:
    """A log file with a limited size.

    Args:
        file: the file's descriptor, open for reading and writing.
        limit: the largest size of the file, in bytes.
    """

    def __init__(self, file: int, limit: int) -> None:
        self.file, self.limit = file, limit
        self.size = 0
        self.head = 0  # length of the beginning that stays; 0: nothing is left out
        self.tail = 0  # where the end begins, behind the line that says how much is missing
        self.missing = 0
        self.lost = 0  # bytes that could not be written

    def add(self, data: bytes) -> None:
        """Append `data`; if the limit is reached, first remove output from the middle of the file."""
        view = memoryview(data)
        while view:
            if self.size >= self.limit:
                self._shorten()
            part = view[: self.limit - self.size]
            self._write(part)
            view = view[len(part) :]

    def _write(self, data: bytes | memoryview) -> None:
        if self.lost:
            note = b"\n[%d bytes could not be written]\n" % self.lost
            if not self._try_write(note):
                self.lost += len(data)
                return
            self.lost = 0
        if not self._try_write(data):
            self.lost += len(data)

    def _try_write(self, data: bytes | memoryview) -> bool:
        """Write `data` completely or not at all; return whether it was written."""
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self.file, data[done:], self.size + done)
        except OSError:  # a full disk, a quota
            try:  # noqa: SIM105 - contextlib takes longer to load than all the rest
                os.ftruncate(self.file, self.size)
            except OSError:
                pass
            return False
        self.size += done
        return True

    def _shorten(self) -> None:
        if not self.head:
            self.head = self.tail = self._find_line_end(self.limit // 2 - BLOCK, self.limit // 2) or self.limit // 2
        start = max(self.tail, self.size - self.limit // 4)
        start = self._find_line_start(start, self.size) or start
        kept = os.pread(self.file, self.size - start, start)
        self.missing += start - self.tail
        note = b"\n[%d bytes left out here: more than sweep.log_megabytes]\n" % self.missing
        os.ftruncate(self.file, self.head)
        self.size = self.head
        self._write(note)
        self.tail = self.size
        self._write(kept)

    def _find_line_end(self, start: int, end: int) -> int:
        """Return the position after the last newline between two positions; 0 without a newline."""
        start = max(0, start)
        return start + 1 + at if (at := os.pread(self.file, end - start, start).rfind(b"\n")) >= 0 else 0

    def _find_line_start(self, start: int, end: int) -> int:
        """Return the position after the first newline near `start`; 0 without a newline."""
        at = os.pread(self.file, min(BLOCK, (end - start) // 2), start).find(b"\n")
        return start + 1 + at if at >= 0 else 0


def main(arguments: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # it ends when the processes of the run have closed their pipes
    limit, scratch = int(arguments[0]), arguments[1]
    descriptors = [int(word) for word in arguments[2:]]
    logs = {pipe: Log(file, limit) for pipe, file in zip(descriptors[::2], descriptors[1::2])}  # noqa: B905
    waiting = select.poll()
    for pipe in logs:
        waiting.register(pipe, select.POLLIN)
    while logs:
        for pipe, _ in waiting.poll():
            data = os.read(pipe, BLOCK)
            if data:
                logs[pipe].add(data)
            else:
                waiting.unregister(pipe)
                del logs[pipe]
    import shutil  # not before the pipes are read: it takes as long to load as all else

    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
