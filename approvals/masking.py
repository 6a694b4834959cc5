"""Secrets look the same here as on every other exit of the runtime."""

from __future__ import annotations

from typing import Any

from agentruntime.conf import runtime_settings
from agentruntime.graph.masking import MASK, mask_text
from agentruntime.graph.masking import mask as mask_fields


def mask(value: Any) -> Any:
    """Return JSON-like `value` with what the runtime's settings call secret replaced."""
    return mask_fields(value, runtime_settings().SECRET_FIELDS)


def mask_words(text: str) -> str:
    """Return `text` with the same fields replaced in the JSON that it holds."""
    return mask_text(text, runtime_settings().SECRET_FIELDS)


def is_secret(name: str) -> bool:
    """Say whether a field of this name is masked."""
    return bool(mask({name: None})[name] == MASK)
