#!/bin/sh
# The same with curl alone (and python3 to read JSON):
#   examples/client.sh http://127.0.0.1:8000 RUN_TOKEN DECIDE_TOKEN "Refund order 1042"
set -eu
[ $# -eq 4 ] || { echo "usage: client.sh SITE RUN_TOKEN DECIDE_TOKEN TEXT" >&2; exit 2; }
site=$1 run_token=$2 decide_token=$3 text=$4
get() { python3 -c 'import json, sys; found = json.load(sys.stdin)
for key in sys.argv[1:]: found = found[int(key) if key.lstrip("-").isdigit() else key]
print(found)' "$@"; }
call() { token=$1; path=$2; shift 2; curl -sS --fail-with-body -H "Authorization: Token $token" \
  -H "Content-Type: application/json" "$@" "$site/api/v1/$path"; }

thread=$(call "$run_token" threads/ -d '{}' | get id)
body=$(python3 -c 'import json, sys; print(json.dumps({"graph": "support", "input": sys.argv[1]}))' "$text")
run=$(call "$run_token" "threads/$thread/runs/" -H "Idempotency-Key: $thread" -d "$body" | get id)
# What happens, as server-sent events; a client comes back with the last id it saw.
follow() { call "$run_token" "runs/$run/events/" -N --max-time 3 -H "Accept: text/event-stream" \
  -H "Last-Event-ID: $1" 2>/dev/null | grep '^event:' || true; }
wait_for() { until [ "$(call "$run_token" "runs/$run/" | get status)" = "$1" ]; do sleep 0.3; done; }
follow 0
wait_for interrupted
seen=$(call "$run_token" "threads/$thread/" | get event_count)
approval=$(call "$decide_token" "approvals/?status=pending&thread=$thread" | get results 0 id)
digest=$(call "$decide_token" "approvals/$approval/" | get digest)
call "$decide_token" "approvals/$approval/approve/" -d "{\"digest\": \"$digest\"}" | get verdict
follow "$seen"
wait_for completed
call "$run_token" "threads/$thread/messages/" | get results -1 content
