"""What code tells watchers while it works: made small and plain before it leaves its hands."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import to_jsonable_python

MAX_CHARACTERS = 16_384


def small_news(data: Any) -> Any:
    """Return `data` as JSON of its own; what is too long or no JSON is said to be so. Never raises.

    A copy: the code may change what it handed over while somebody still reads it.
    """
    try:
        text = json.dumps(to_jsonable_python(data, bytes_mode="base64"), allow_nan=False)
    except Exception:  # a property or a __str__ of the host's may raise anything
        return {"unreadable": type(data).__name__}
    return json.loads(text) if len(text) <= MAX_CHARACTERS else {"too_long": len(text)}
