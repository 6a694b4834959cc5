"""Tools: plain functions with a schema for the model and a promise about their effect."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from functools import cached_property
from typing import Any, Literal, overload

from pydantic import (
    BaseModel,
    ConfigDict,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)

from agentruntime.exceptions import InvalidArguments, InvalidTool
from agentruntime.graph.json_values import NotJson, check_json, digest, read_json
from agentruntime.graph.lossless import check_lossless
from agentruntime.graph.signatures import injected_parameters, parameters_model, summary_of
from agentruntime.graph.state import first_problem

Effect = Literal["repeatable", "once", "transactional"]
CLOSED = ConfigDict(extra="forbid")
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Outcome(Enum):
    """What `reconcile` may answer instead of a result."""

    NOT_DONE = "not done"
    UNKNOWN = "unknown"


NOT_DONE, UNKNOWN = Outcome.NOT_DONE, Outcome.UNKNOWN


@dataclass(frozen=True)
class ApprovalRule:
    """When a call needs a person, and which.

    `title` is filled with the arguments; `when(arguments)` says whether to ask at all (typed
    values); `permission` and `group` name who may decide; `amount` and `target` name the arguments
    that hold the money (a Decimal) and whom it concerns; `editable` those that an approver may
    change; `approvers` how many must agree; `expires_in` after which time nobody needs to answer
    any more, and `on_expiry` whether that declines the call or keeps it waiting, overdue;
    `recheck(arguments)` is asked right before the call starts and answers None or why not.
    """

    title: str = ""
    when: Callable[[dict[str, Any]], bool] | None = None
    permission: str = ""
    group: str = ""
    amount: str = ""
    currency: str = ""
    target: str = ""
    editable: tuple[str, ...] = ()
    approvers: int = 1
    expires_in: timedelta | None = None
    on_expiry: Literal["decline", "wait"] = "decline"
    remind_after: timedelta | None = None
    escalate_after: timedelta | None = None
    escalate_to: str = ""
    recheck: Callable[[dict[str, Any]], str | None] | None = None


@dataclass(frozen=True)
class ToolResult:
    """What a tool returns to change state fields too: `update` holds deltas for the reducers."""

    content: Any
    update: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tool:
    """A function as the model sees it, and how the runtime may run it.

    `timeout` in seconds (None: the run's `tool_timeout`), `retries` beyond the first attempt for
    errors of `retry_on`, with `retry_delay` seconds doubled each time; `concurrency` how many calls
    of it may work at once in a process; `sequential`: never beside another call of its turn.
    `handoff` is the node that the run goes on at, `agent` the graph that answers; see `handoff()`
    and `agent_tool()`.
    `runs="client"`: whoever started the run runs the call and sends its result, which has to fit
    `returns` (a type or a JSON Schema; by default the function's own), within `timeout`.
    `given` are the parameters, where they are not the function's. `must_ask` says why each call
    needs a person, whatever its rule says.
    """

    fn: Callable[..., Any]
    name: str
    description: str
    effect: Effect = "repeatable"
    approval: ApprovalRule | None = None
    timeout: float | None = None
    reconcile: Callable[..., Any] | None = None
    key_ttl: timedelta | None = None
    retries: int = 0
    retry_on: tuple[type[Exception], ...] = (Exception,)
    retry_delay: float = 1.0
    concurrency: int | None = None
    sequential: bool = False
    isolation: Literal["thread", "process"] = "thread"
    handoff: str = ""
    agent: Any = None
    runs: Literal["server", "client"] = "server"
    returns: Any = field(default=None, hash=False)
    given: type[BaseModel] | None = None
    must_ask: str = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, outside of any run: no validation, no ledger, no approval."""
        return self.fn(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.fn)

    @cached_property
    def injected(self) -> frozenset[str]:
        """The names of the parameters that the runtime gives."""
        return frozenset() if self.given is not None else injected_parameters(self.fn)

    @cached_property
    def parameters(self) -> type[BaseModel]:
        """The model-given parameters as a pydantic model that refuses unknown ones."""
        if self.given is not None:
            return type(self.given.__name__, (self.given,), {"model_config": CLOSED})
        return parameters_model(self.fn, self.name)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, as the model is told it."""
        return self.parameters.model_json_schema()

    @cached_property
    def result_schema(self) -> Any:
        """The JSON Schema of what a client sends as the result of a call, or None: anything."""
        wanted = self.returns
        if wanted is None and self.given is None:
            wanted = typing.get_type_hints(self.fn, include_extras=True).get("return")
        if wanted is None or isinstance(wanted, dict | bool):
            return wanted
        try:
            return TypeAdapter(wanted).json_schema()
        except (PydanticUserError, NameError) as error:
            raise InvalidTool(tool=self.name, problem=str(error).splitlines()[0]) from None

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the name and the schema: an approval for another one does not count."""
        return digest({"name": self.name, "schema": self.schema})

    def read_arguments(self, raw: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arguments as typed values and as the JSON that is shown, stored and run.

        `raw` is what the model sent: an object, or text that should be one; empty text stands for
        no arguments. Defaults are filled in. Raises `InvalidArguments`.
        """
        try:
            found = object_from(raw)
            check_json(found)
            values = self.parameters.model_validate(found)
            stored = values.model_dump(mode="json", by_alias=True)
            check_json(stored)
            check_lossless(found, stored)
        except NotJson as error:
            raise InvalidArguments(tool=self.name, reason=str(error)[:300]) from None
        except ValidationError as error:
            raise InvalidArguments(tool=self.name, reason=_problems(error)) from None
        return self.typed(values), stored

    def load_arguments(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return stored arguments as the typed values that the function takes."""
        try:
            return self.typed(self.parameters.model_validate(dict(stored)))
        except ValidationError as error:
            raise InvalidArguments(tool=self.name, reason=_problems(error)) from None

    @staticmethod
    def typed(values: BaseModel) -> dict[str, Any]:
        return {name: getattr(values, name) for name in type(values).model_fields}


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str = ...,
    description: str = ...,
    effect: Effect = ...,
    approval: ApprovalRule | bool | None = ...,
    timeout: float | None = ...,
    reconcile: Callable[..., Any] | None = ...,
    key_ttl: timedelta | None = ...,
    retries: int = ...,
    retry_on: type[Exception] | tuple[type[Exception], ...] = ...,
    retry_delay: float = ...,
    concurrency: int | None = ...,
    sequential: bool = ...,
    isolation: Literal["thread", "process"] = ...,
    runs: Literal["server", "client"] = ...,
    returns: Any = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Any = None, /, **options: Any) -> Any:
    """Make a function a tool; see `Tool` for the options. `approval=True` is the default rule."""
    if fn is None:
        return lambda function: as_tool(function, **options)
    return as_tool(fn, **options)


def as_tool(fn: Any, **options: Any) -> Tool:
    """Return `fn` as a `Tool`; a `Tool` stays as it is. Raises `InvalidTool`."""
    if isinstance(fn, Tool) and not options:
        return fn
    if isinstance(options.get("retry_on"), type):
        options["retry_on"] = (options["retry_on"],)
    if isinstance(options.get("approval"), bool):
        options["approval"] = ApprovalRule() if options["approval"] else None
    if isinstance(fn, Tool):
        made = replace(fn, **options)
    else:
        name = options.pop("name", "") or getattr(fn, "__name__", "")
        description = options.pop("description", "") or summary_of(fn)
        made = Tool(fn=fn, name=name, description=description, **options)
    if problem := _problem_of(made):
        raise InvalidTool(tool=made.name, problem=problem)
    return made


def client_tool(
    name: str,
    parameters: type[BaseModel],
    *,
    description: str = "",
    returns: Any = None,
    **options: Any,
) -> Tool:
    """Return a tool that the client runs, where there is no function for it here.

    `parameters` is a pydantic model of its arguments, `returns` a type or a JSON Schema that the
    result must fit. See `Tool` for the other options. Raises `InvalidTool`.
    """
    description = description or inspect.cleandoc(parameters.__doc__ or "")
    made = Tool(
        fn=_run_by_the_client,
        name=name,
        description=description,
        runs="client",
        returns=returns,
        given=parameters,
    )
    return as_tool(made, **{"name": name, **options})


def _run_by_the_client(**arguments: Any) -> Any:
    raise NotImplementedError("the client runs this tool")


def _problem_of(made: Tool) -> str:
    if not NAME.fullmatch(made.name):
        return "a name has 1 to 64 letters, digits, _ or -"
    if made.effect not in typing.get_args(Effect):
        return f"the effect is one of {', '.join(typing.get_args(Effect))}, not {made.effect!r}"
    if made.effect == "transactional" and (made.is_async or made.isolation == "process"):
        return "a transactional tool is a plain function: it works inside the database transaction"
    if made.runs == "client" and (made.effect == "transactional" or made.isolation == "process"):
        return "what the client runs is neither transactional nor in a process of its own"
    if made.runs == "client":
        _ = made.result_schema  # raises InvalidTool for a type that has none
    parameters = set(made.parameters.model_fields)  # raises InvalidTool for what has no schema
    rule = made.approval
    named = {rule.amount, rule.target, *rule.editable} - {""} if rule else set()
    if unknown := named - parameters:
        return f"its approval names the parameters {sorted(unknown)}, which it does not have"
    return ""


def object_from(raw: Any) -> dict[str, Any]:
    """Return what a model sent as arguments, as an object. Raises `NotJson`."""
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return {}
    found = read_json(raw) if isinstance(raw, str) else raw
    if not isinstance(found, dict):
        shown = repr(raw)
        raise NotJson("$", f"an object was expected, not {shown[:80]}")
    return found


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{'.'.join(str(part) for part in one['loc']) or '$'}: {one['msg']}" for one in found]
    return "; ".join(lines[:10]) if lines else first_problem(error)
