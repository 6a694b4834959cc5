"""Peer: LangGraph with the history in a `DeltaChannel` (beta): a checkpoint holds what is new."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.graph.message import _messages_delta_reducer

from benchmarks.contenders import peer_langgraph


class State(TypedDict):
    """As the other's, the messages in deltas."""

    messages: Annotated[list, DeltaChannel(_messages_delta_reducer)]
    counter: Annotated[int, operator.add]


class Contender(peer_langgraph.Contender):
    """The same graphs over the other state."""

    state = State
