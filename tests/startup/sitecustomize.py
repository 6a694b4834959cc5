"""Loaded by the suite and by every Python that it starts: what a model is given is checked.

All model calls of runs, scripted or real, go through `ModelCall`; the one validator reads what each
is given, in the moment it is given. What is not sound is noted in the file UNSOUND_PROMPTS, and the
test at work fails at its end.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

NOTED = "UNSOUND_PROMPTS"
WATCHED = "agentruntime.lifecycle.spending"
# By its place: the process may be one of another project.
VALIDATOR = Path(__file__).resolve().parent.parent / "llm" / "payloads.py"


class Watch:
    """Puts itself before the model calls when their module is loaded, which may be never."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def watched(module: ModuleType) -> None:
            load(module)
            watch(module.ModelCall)

        spec.loader.exec_module = watched  # type: ignore[method-assign]
        return spec


def watch(model_call: Any) -> None:
    """Have every `ModelCall` checked when it is made."""
    validator = load_validator()
    begin = model_call.__init__

    def checked(
        self: Any, progress: Any, model: str, messages: Sequence[Any], tools: Sequence[Any]
    ) -> None:
        try:
            validator.check_messages(messages)
            validator.check_tools(tools)
        except validator.InvalidPayload as problem:
            with Path(os.environ[NOTED]).open("a") as noted:
                noted.write(f"{progress.run.graph}: {problem}\n")
        begin(self, progress, model, messages, tools)

    model_call.__init__ = checked


def load_validator() -> Any:
    spec = importlib.util.spec_from_file_location("prompt_validator", VALIDATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if os.environ.get(NOTED):
    sys.meta_path.insert(0, Watch())  # type: ignore[arg-type]
