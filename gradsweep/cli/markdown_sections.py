"""The parts of a page that a command writes, between two comments that name the part.

<!-- methods: python -m compressors list --into docs/reference/compressors.md -->
...
<!-- end of methods -->
"""

from __future__ import annotations

import re
from pathlib import Path

from gradsweep.errors import UsageError


def fill(page: Path, part: str, text: str) -> None:
    """Replace the text of the part in `page` by `text`.

    Raises:
        UsageError: the page cannot be read or written, has no such part, or more than one.
    """
    before, _, after = _split(page, part)
    try:
        page.write_text(f"{before}\n\n{text}\n\n{after}", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{page}: {error.strerror}") from error


def read(page: Path, part: str) -> str:
    """Return the text of the part in `page`.

    Raises:
        UsageError: as `fill`.
    """
    return _split(page, part)[1].strip()


def _split(page: Path, part: str) -> tuple[str, str, str]:
    """Return the page before the part, the part, and the page after it; the part's two comments are not in the part."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{page}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{page}: is not a text in UTF-8") from error
    begins = [match.end() for match in re.finditer(f"<!-- {part}: [^\n]*-->", text)]
    ends = [match.start() for match in re.finditer(f"<!-- end of {part} -->", text)]
    if len(begins) != 1 or len(ends) != 1 or ends[0] < begins[0]:
        raise UsageError(f"{page}: has no part between <!-- {part}: ... --> and <!-- end of {part} -->, or several")
    return text[: begins[0]], text[begins[0] : ends[0]], text[ends[0] :]
