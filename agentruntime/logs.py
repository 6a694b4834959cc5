"""Log lines of what the runtime announces: one logger, one line per fact, facts as fields."""

from __future__ import annotations

import logging
from typing import Any

from django.dispatch import receiver

from agentruntime.bound import bound_facts
from agentruntime.signals import noticed

logger = logging.getLogger("agentruntime")


@receiver(noticed, dispatch_uid="agentruntime.logs")
def write_line(
    *, level: str, event: str, facts: dict[str, Any], exc_info: Any = None, **_: Any
) -> None:
    """Write one line: what happened, then `name=value` for each fact, control characters escaped.

    Inside of a run its id, thread, node and fencing token are among the facts (`record.facts`).
    """
    facts = {**bound_facts(), **facts}
    told = " ".join(f"{name}={str(value)!r}" for name, value in facts.items())
    logger.log(
        logging.getLevelName(level.upper()),
        "%s %s",
        event,
        told,
        exc_info=exc_info,
        extra={"facts": facts},
    )
