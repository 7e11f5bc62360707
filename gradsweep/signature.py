"""The signature of a run: what makes two runs the same run, wherever and however they are made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from gradsweep.run_directory import ADDED, PLACES


def signature(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a resolved config without `PLACES`, in hex."""
    return signature_of_sections({key: canonical(value) for key, value in config.items()})


def canonical(value: Any) -> str:
    """Return the value of a config as JSON of which there is only one form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def signature_of_sections(sections: Mapping[str, str]) -> str:
    """Return the signature of a config whose values by their keys are `canonical` already."""
    kept = [key for key in sections if key not in PLACES and sections[key] != _ADDED.get(key)]
    text = ",".join(f"{canonical(key)}:{sections[key]}" for key in sorted(kept))
    return hashlib.sha256(f"{{{text}}}".encode()).hexdigest()


_ADDED = {key: canonical(value) for key, value in ADDED.items()}
