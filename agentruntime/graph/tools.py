"""Tools: plain functions with a schema for the model and a promise about their effect."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import Enum
from functools import cached_property
from typing import Any, Literal, overload

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from agentruntime.exceptions import InvalidArguments, InvalidTool
from agentruntime.graph.json_values import NotJson, canonical_json, check_json, digest, read_json
from agentruntime.graph.lossless import check_lossless, in_sent_order
from agentruntime.graph.signatures import injected_parameters, parameters_model, summary_of
from agentruntime.graph.state import first_problem
from agentruntime.graph.tool_options import problem_of

Effect = Literal["repeatable", "once", "transactional"]
CLOSED = ConfigDict(extra="forbid")


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
    errors of `retry_on`, with `retry_delay` seconds doubled each time (a day at most);
    `concurrency` how many calls of it may work at once in a process; `sequential`: never beside
    another call of its turn.
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

    @property
    def parameter_names(self) -> Set[str]:
        """The names of the parameters that a model gives. Raises `InvalidTool`."""
        return self.parameters.model_fields.keys()

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
            values = self._validated(found)
            written = values.model_dump(mode="json", by_alias=True, round_trip=True)
            stored = in_sent_order(found, written)
            check_json(stored)
            check_lossless(found, stored)
            if self._validated(stored) != values:
                raise NotJson("$", "they would not come back equal from where they are stored")
        except NotJson as error:
            raise InvalidArguments(tool=self.name, reason=str(error)[:300]) from None
        except PydanticSerializationError as error:
            raise InvalidArguments(tool=self.name, reason=str(error)[:300]) from None
        return self.typed(values), stored

    def load_arguments(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return stored arguments as the typed values that the function takes."""
        return self.typed(self._validated(stored))

    def _validated(self, given: Mapping[str, Any]) -> BaseModel:
        """Read as JSON, so that strict types too take the forms that JSON has for them."""
        try:
            return self.parameters.model_validate_json(canonical_json(given))
        except ValidationError as error:
            raise InvalidArguments(tool=self.name, reason=_problems(error)) from None
        except Exception as error:  # a validator of the tool's own cannot take these
            reason = f"{type(error).__name__}: {error}"[:300]
            raise InvalidArguments(tool=self.name, reason=reason) from None

    @staticmethod
    def typed(values: BaseModel) -> dict[str, Any]:
        return dict(vars(values))  # no attributes: a parameter may be called `copy` or `json`


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
    if unknown := sorted(set(options) - {one.name for one in fields(Tool)}):
        name = fn.name if isinstance(fn, Tool) else getattr(fn, "__name__", "")
        raise InvalidTool(tool=name, problem=f"it has no option named {', '.join(unknown)}")
    if isinstance(fn, Tool):
        made = replace(fn, **options)
    else:
        name = options.pop("name", "") or getattr(fn, "__name__", "")
        description = options.pop("description", "") or summary_of(fn)
        made = Tool(fn=fn, name=name, description=description, **options)
    if problem := problem_of(made):
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
