"""The floor's schema and statements: the least that a durable step of a conversation needs.

A head row that is locked and checked by its version, a checkpoint of about 1 kB, one message.
"""

from __future__ import annotations

import json

SCHEMA = """
CREATE TABLE head (
    thread text PRIMARY KEY,
    version bigint NOT NULL DEFAULT 0,
    next_node text NOT NULL DEFAULT '',
    question jsonb,
    changed_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE checkpoint (
    thread text NOT NULL, version bigint NOT NULL, state jsonb NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (thread, version));
CREATE TABLE message (
    thread text NOT NULL, ordinal bigint NOT NULL, role text NOT NULL, content text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (thread, ordinal));
CREATE TABLE result (
    thread text NOT NULL, call text NOT NULL, value jsonb NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (thread, call));
"""

OPEN_THREAD = "INSERT INTO head (thread) VALUES (%s) ON CONFLICT DO NOTHING"

# One statement is one round trip, one implicit transaction, one flush of the log. A version
# counts messages here, as every step brings one.
STEP = """
WITH moved AS (
    UPDATE head SET version = version + 1, next_node = %(node)s, changed_at = now()
    WHERE thread = %(thread)s AND version = %(version)s
    RETURNING thread, version
), kept AS (
    INSERT INTO checkpoint (thread, version, state)
    SELECT thread, version, %(state)s::jsonb FROM moved
), said AS (
    INSERT INTO message (thread, ordinal, role, content)
    SELECT thread, version, %(role)s, %(content)s FROM moved
)
SELECT version FROM moved
"""

# The same for the steps of several threads: one statement, one flush for all of them.
STEPS = """
WITH given AS (
    SELECT * FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::jsonb[], %s::text[], %s::text[])
    AS g (thread, version, node, state, role, content)
), moved AS (
    UPDATE head SET version = head.version + 1, next_node = given.node, changed_at = now()
    FROM given WHERE head.thread = given.thread AND head.version = given.version
    RETURNING head.thread, head.version
), kept AS (
    INSERT INTO checkpoint (thread, version, state)
    SELECT thread, moved.version, state FROM moved JOIN given USING (thread)
), said AS (
    INSERT INTO message (thread, ordinal, role, content)
    SELECT thread, moved.version, role, content FROM moved JOIN given USING (thread)
)
SELECT thread, version FROM moved
"""

RESULTS = """
INSERT INTO result (thread, call, value)
SELECT %s, call, value FROM unnest(%s::text[], %s::jsonb[]) AS given (call, value)
ON CONFLICT DO NOTHING
"""

HISTORY = "SELECT role, content FROM message WHERE thread = %s ORDER BY ordinal"

ANSWER = """
UPDATE head SET question = question || %s::jsonb, changed_at = now()
WHERE thread = %s AND question IS NOT NULL RETURNING version
"""

FILL_HISTORY = """
INSERT INTO message (thread, ordinal, role, content)
SELECT %s, n, 'user', content FROM unnest(%s::text[]) WITH ORDINALITY AS given (content, n)
"""

ASK = """
UPDATE head SET version = %s, question = '{"tool": "charge"}' WHERE thread = %s
"""


def state_of(version: int) -> dict[str, object]:
    """A state of about 1 kB that does not hold the history."""
    return {"counter": version, "node": f"node {version}", "pad": "." * 950}


def state_text(version: int) -> str:
    """The same as JSON text."""
    return json.dumps(state_of(version))


def step_values(thread: str, version: int, content: str, role: str) -> dict[str, object]:
    """The parameters of `STEP`."""
    return {
        "thread": thread,
        "version": version,
        "node": f"node {version}",
        "state": state_text(version),
        "role": role,
        "content": content,
    }
