"""Every error of the runtime, and the signals that steer it.

An error is one sentence (`sentence`, filled with its facts), its facts as attributes and a stable
`code` that is safe to show and to match on. Signals are a family of their own: they derive from
`BaseException`, so that an `except Exception` in a tool cannot swallow them.
"""

from __future__ import annotations

from typing import Any


class AgentRuntimeError(Exception):
    """Base of every error that the runtime raises on purpose."""

    code = "AGENT_RUNTIME_001"
    sentence = "The agent runtime cannot do this."

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)
        super().__init__(self.sentence.format(**facts))


# --- the definition of a graph ---------------------------------------------------------------


class GraphError(AgentRuntimeError):
    """Base of what is wrong with the shape of a graph; raised when it is built or registered."""

    code = "GRAPH_001"


class InvalidGraph(GraphError):
    code = "GRAPH_002"
    sentence = "The graph {graph!r} cannot run: {problem}."


class GraphNameTaken(GraphError):
    code = "GRAPH_003"
    sentence = "Two graphs are registered under the name {graph!r}."


class UnknownGraph(GraphError):
    code = "GRAPH_004"
    sentence = (
        "No graph is registered as {graph!r}; there are: {known}. Graphs are looked for in the "
        "module agents.py of each app in INSTALLED_APPS."
    )


class InvalidTool(GraphError):
    code = "GRAPH_005"
    sentence = "The tool {tool!r} cannot be used: {problem}."


# --- what a step may do ----------------------------------------------------------------------


class StepError(AgentRuntimeError):
    """Base of what a node did that the runtime cannot carry out; the run fails with its code."""

    code = "STEP_001"


class UnmatchedRoute(StepError):
    code = "ROUTE_001"
    sentence = (
        "After node {node!r} the route answered {answer!r}, which leads nowhere; it may answer:"
        " {known}."
    )


class UnknownTarget(StepError):
    code = "ROUTE_002"
    sentence = (
        "Node {node!r} wants to go to {target!r}, which is no node of the graph; there are: "
        "{known}."
    )


class UnjoinableBranches(StepError):
    code = "ROUTE_003"
    sentence = "The branches that {node!r} opens cannot be joined: {problem}."


class UnknownStateField(StepError):
    code = "STATE_FIELD_001"
    sentence = "The state has no field {field!r}; it has: {known}."


class InvalidStateValue(StepError):
    code = "STATE_FIELD_002"
    sentence = "The state field {field!r} does not take this value: {reason}."


class StateNotStorable(StepError):
    code = "STATE_FIELD_003"
    sentence = "The state field {field!r} cannot be stored exactly: {reason}."


class StateConflict(StepError):
    code = "STATE_CONFLICT_001"
    sentence = (
        "Parallel calls or branches set the state field {field!r} to different values that no "
        "reducer joins: {calls}."
    )


class InvalidNodeResult(StepError):
    code = "STEP_002"
    sentence = (
        "Node {node!r} returned {kind}, which is none of: None, dict, Message, list of Message,"
        " State, Command."
    )


class NoToolCalls(StepError):
    code = "STEP_003"
    sentence = "Node {node!r} runs tools, but the last assistant message asks for none."


class NodeFailed(StepError):
    code = "NODE_FAILED_001"
    sentence = "Node {node!r} raised {kind}: {reason}"


class RecursionLimitReached(StepError):
    code = "RECURSION_LIMIT_001"
    sentence = (
        "The run has done {steps} of at most {limit} steps, and {node!r} would go beyond that; "
        "retry it with a higher recursion_limit."
    )


class BudgetExceeded(StepError):
    code = "BUDGET_001"
    sentence = (
        "The budget of the run is {limit} in {what}; {spent} are spent, and the next model call "
        "may take {wanted}; retry it with a higher one."
    )


class PriceUnknown(StepError):
    code = "BUDGET_002"
    sentence = "The budget of the run is in money, and what {model} costs is not known."


class NodeTimeout(StepError):
    code = "NODE_TIMEOUT_001"
    sentence = "Node {node!r} was not done within {seconds:g} seconds."


class GraphChanged(StepError):
    code = "GRAPH_CHANGED_001"
    sentence = "The run cannot go on with the code that is running now: {reason}."


class RunParked(StepError):
    code = "RUN_PARKED_001"
    sentence = (
        "The run was given up after {attempts} attempts without progress; the last one ended "
        "without a word (its worker died)."
    )


class CallParked(StepError):
    code = "CALL_PARKED_001"
    sentence = (
        "The call of {tool!r} was started {attempts} times and its worker died each time; it is"
        " not started again by itself."
    )


# --- what becomes a tool error for the model -------------------------------------------------


class ToolError(AgentRuntimeError):
    """Base of what the model is told in place of a result."""

    code = "TOOL_001"


class ToolFailed(ToolError):
    code = "TOOL_FAILED_001"
    sentence = "{kind}: {reason}"


class UnknownTool(ToolError):
    code = "TOOL_UNKNOWN_001"
    sentence = "There is no tool {tool!r}; there are: {known}."


class InvalidArguments(ToolError):
    code = "TOOL_ARGUMENTS_001"
    sentence = "The arguments of {tool!r} are not valid: {reason}"


class HandoffTaken(ToolError):
    code = "TOOL_HANDOFF_001"
    sentence = "Nothing was done: the conversation was handed over by {tool!r} in the same message."


class ToolTimeout(ToolError):
    code = "NODE_TIMEOUT_002"
    sentence = (
        "The tool {tool!r} was not done within {seconds:g} seconds; whether it took effect is "
        "not known."
    )


class JobOverdue(ToolError):
    code = "JOB_OVERDUE_001"
    sentence = (
        "The job that {tool!r} had started did not end in time; whether it still takes effect is "
        "not known{said}."
    )


class ClientOverdue(ToolError):
    code = "CLIENT_OVERDUE_001"
    sentence = (
        "The call of {tool!r} was handed to the client, which sent no result within {seconds:g} "
        "seconds; whether it took effect is not known."
    )


class McpUnreachable(ToolError):
    code = "MCP_001"
    sentence = "The MCP server {server!r} cannot be reached ({reason}). Nothing was done."


class McpToolChanged(ToolError):
    code = "MCP_002"
    sentence = (
        "The server of {tool!r} offers it no more as it was when it was called. Nothing was done; "
        "it may be called as it is now, which a person has to allow."
    )


class McpToolFailed(ToolError):
    code = "MCP_003"
    sentence = "{said}"


class ResultNotStorable(ToolError):
    code = "TOOL_RESULT_001"
    sentence = "The tool {tool!r} did its work, but its result cannot be stored: {reason}."


# --- writing for a run -----------------------------------------------------------------------


class LeaseLost(AgentRuntimeError):
    """Another worker holds the run now; whoever sees this writes nothing more and stops."""

    code = "LEASE_LOST_001"
    sentence = "The lease of run {run} with fencing token {token} is no longer held."


class StaleState(AgentRuntimeError):
    """The thread has moved on since this writer read it."""

    code = "STORAGE_CONFLICT_001"
    sentence = (
        "Thread {thread} is at version {found}, not at {expected}: somebody else wrote to it."
    )


# --- asking something of the runtime ---------------------------------------------------------


class RequestError(AgentRuntimeError):
    """Base of a request that cannot be carried out; nothing was changed."""

    code = "REQUEST_001"


class InvalidInput(RequestError):
    code = "INPUT_001"
    sentence = "The input is not valid: {reason}."


class InvalidConfig(RequestError):
    code = "CONFIG_001"
    sentence = "The config is not valid: {reason}."


class ThreadNotFound(RequestError):
    code = "THREAD_NOT_FOUND_001"
    sentence = "There is no thread {thread}."


class CheckpointNotFound(RequestError):
    code = "CHECKPOINT_NOT_FOUND_001"
    sentence = "Thread {thread} has no version {version}."


class RunNotFound(RequestError):
    code = "RUN_NOT_FOUND_001"
    sentence = "There is no run {run}."


class InterruptNotFound(RequestError):
    code = "INTERRUPT_NOT_FOUND_001"
    sentence = "There is no interrupt {interrupt}."


class ThreadBusy(RequestError):
    code = "THREAD_BUSY_001"
    sentence = (
        "Thread {thread} has the run {run}, which is {status}; a new one can start when it has "
        "ended."
    )


class IdempotencyConflict(RequestError):
    code = "IDEMPOTENCY_CONFLICT_001"
    sentence = "The idempotency key was used before for another request (run {run})."


class AlreadyAnswered(RequestError):
    code = "INTERRUPT_ANSWERED_001"
    sentence = "The interrupt {interrupt} is {status} and takes no answer any more."


class InvalidAnswer(RequestError):
    code = "INTERRUPT_ANSWER_001"
    sentence = "The answer to interrupt {interrupt} is not valid: {reason}."


class WrongDoor(RequestError):
    code = "INTERRUPT_KIND_001"
    sentence = "The interrupt {interrupt} is an approval: it is decided, not answered."


class CallbackUnknown(RequestError):
    code = "CALLBACK_001"
    sentence = "No call waits at this address."


class CallbackRefused(RequestError):
    code = "CALLBACK_002"
    sentence = "This result cannot be taken: {reason}."


class IllegalTransition(RequestError):
    code = "RUN_STATUS_001"
    sentence = "The run {run} is {status}; it cannot be {wanted}."


class WaitTimeout(AgentRuntimeError):
    code = "WAIT_TIMEOUT_001"
    sentence = "The run {run} is still {status} after {seconds:g} seconds."


# --- the model -------------------------------------------------------------------------------


class ModelError(StepError):
    """Base of why a model gave no answer. `model` is `provider:name`, `attempts` how many requests
    were made for the answer. `passing`: the same request may succeed later, `retry_after` seconds
    from now if the provider said when; `elsewhere`: the next model of a fallback chain is asked.
    No sentence carries a key or a header.
    """

    code = "MODEL_001"
    sentence = "The model {model} gave no answer ({attempts} attempts): {reason}"
    passing = False
    elsewhere = True
    retry_after: float | None = None


class InvalidModel(ModelError):
    code = "MODEL_002"
    sentence = "The model {model!r} cannot be used: {problem}."
    elsewhere = False


class ModelCredentialsRefused(ModelError):
    code = "MODEL_003"
    sentence = "The provider of {model} refused the credentials: {reason}"


class ModelRequestRefused(ModelError):
    """The provider does not take this request (a 4xx); asking again would not help."""

    code = "MODEL_004"
    sentence = "The provider of {model} refused the request: {reason}"
    elsewhere = False


class ModelContextExceeded(ModelError):
    code = "MODEL_005"
    sentence = "The conversation is longer than {model} takes: {reason}"


class ModelQuotaExceeded(ModelError):
    code = "MODEL_006"
    sentence = "The account at the provider of {model} is used up: {reason}"


class ModelRateLimited(ModelError):
    code = "MODEL_007"
    sentence = "The provider of {model} limits the rate, after {attempts} attempts: {reason}"
    passing = True


class ModelUnavailable(ModelError):
    code = "MODEL_008"
    sentence = "The provider of {model} has a fault, after {attempts} attempts: {reason}"
    passing = True


class ModelUnreachable(ModelError):
    """No connection, or one that broke before the answer was whole; nothing of it is kept."""

    code = "MODEL_009"
    sentence = "The provider of {model} could not be reached, after {attempts} attempts: {reason}"
    passing = True


class ModelTimedOut(ModelError):
    code = "MODEL_010"
    sentence = "The model {model} had not answered at the deadline, after {attempts} attempts."
    elsewhere = False


class ModelAnswerUnreadable(ModelError):
    """The provider answered with something that is no answer of its protocol."""

    code = "MODEL_011"
    sentence = "The answer of {model} could not be read, after {attempts} attempts: {reason}"
    passing = True


class ModelRequestsOff(ModelError):
    code = "MODEL_012"
    sentence = "Real model requests are switched off, and {model} at {host} would be one."
    elsewhere = False


class ModelUnknown(ModelError):
    code = "MODEL_013"
    sentence = "The provider does not know {model}: {reason}"


class OutputInvalid(StepError):
    """The agent was to end with a structured answer, and the model did not give one."""

    code = "OUTPUT_001"
    sentence = "The model gave no valid answer in {attempts} attempts; the last one: {reason}"


class AnswerTooEarly(ToolError):
    code = "OUTPUT_002"
    sentence = "The answer came beside other calls; give it when their results are there."


# --- signals ---------------------------------------------------------------------------------


class ControlFlow(BaseException):
    """Base of what steers a run. Not an `Exception`: user code does not catch it by accident."""


class Interrupted(ControlFlow):
    """Raised by `interrupt()` in place of an answer that is not there yet."""


class Cancelled(ControlFlow):
    """The work was given up: stopped, timed out, or the lease is gone."""
