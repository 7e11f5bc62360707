"""The text of dataset=pydoc: the topics of Python's own help, which every Python has on disk."""

from __future__ import annotations

import functools
import hashlib
import platform


def read_topics() -> str:
    """Return the topics of this Python's `pydoc_data.topics` in alphabetical order, with a line break between two."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


@functools.cache
def hash_topics() -> str:
    """Return the SHA-256 of the text as UTF-8, in hex."""
    return hashlib.sha256(read_topics().encode()).hexdigest()


def describe_topics() -> str:
    """Name the text for an error line."""
    return f"the topics of Python {platform.python_version()}"
