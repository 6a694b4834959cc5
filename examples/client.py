"""Starts a run, follows it by websocket, has another person's token decide, prints the answer.

python examples/client.py http://127.0.0.1:8000 RUN_TOKEN DECIDE_TOKEN "Refund order 1042"
"""

import json
import sys
import urllib.error
import urllib.request
import uuid

from websockets.sync.client import connect

if len(sys.argv) != 5:
    print("usage: client.py SITE RUN_TOKEN DECIDE_TOKEN TEXT", file=sys.stderr)
    sys.exit(2)
site, run_token, decide_token, text = sys.argv[1:]


def call(token, method, path, body=None, **headers):
    headers |= {"Authorization": f"Token {token}", "Content-Type": "application/json"}
    data = json.dumps(body or {}).encode() if method == "POST" else None
    request = urllib.request.Request(f"{site}/api/v1/{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        is_json = refused.headers.get_content_type() == "application/json"
        why = json.load(refused)["detail"] if is_json else refused.reason
        sys.exit(f"{method} {path} was refused ({refused.code}): {why}")
    except urllib.error.URLError as error:
        sys.exit(f"{site} cannot be reached: {error.reason}")


thread = call(run_token, "POST", "threads/")["id"]
key = {"Idempotency-Key": str(uuid.uuid4())}  # sent again with the same key, nothing starts twice
run = call(run_token, "POST", f"threads/{thread}/runs/", {"graph": "support", "input": text}, **key)
address = f"{site.replace('http', 'ws', 1)}/ws/threads/{thread}/?after=0"
with connect(address, additional_headers={"Authorization": f"Token {run_token}"}) as socket:
    for event in map(json.loads, socket):
        print(event.get("seq", "-"), event["type"])
        if event["type"] == "run.interrupted":
            waiting = call(decide_token, "GET", f"approvals/?status=pending&thread={thread}")
            for one in waiting["results"]:
                print("approve:", one["title"], one["arguments"])
                shown = {"digest": one["digest"]}
                call(decide_token, "POST", f"approvals/{one['id']}/approve/", shown)
        if event["type"] in ("run.completed", "run.failed", "run.stopped"):
            break
print(call(run_token, "GET", f"threads/{thread}/messages/")["results"][-1]["content"])
