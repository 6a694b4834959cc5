"""What no database could keep is refused before any handler: 400 with its place, never a 500."""

import json
from typing import Any

import pytest

from agentruntime.models import Run, Thread

pytestmark = pytest.mark.django_db(transaction=True)

# reliability.md G and C.3: name, the JSON text of a value, what the refusal names.
BAD: list[tuple[str, str, str]] = [
    ("NUL", '"a\\u0000b"', "NUL"),
    ("lone surrogate", '"\\ud800"', "surrogate"),
    ("NaN", "NaN", "NaN"),
    ("infinity", "Infinity", "Infinity"),
    ("negative infinity", "-Infinity", "Infinity"),
    ("1e400", "1e400", "inf"),
    ("5,000 digits", "9" * 5000, "too long"),
    ("duplicate keys", '{"k": 1, "k": 2}', "twice"),
    ("depth 100", "[" * 100 + "]" * 100, "deep"),
    ("depth 5,000", "[" * 5000 + "]" * 5000, "deep"),
    ("depth 100,000", "[" * 100_000 + "]" * 100_000, "deep"),
    ("20,000 keys", json.dumps(dict.fromkeys(map(str, range(20_000)))), "keys"),
    ("NUL in a key", '{"a\\u0000": 1}', "NUL"),
    ("surrogate in a key", '{"\\udfff": 1}', "surrogate"),
]
WAYS = ["/api/v1/threads/{thread}/runs/", "/api/v1/threads/", "/api/v1/interrupts/{thread}/resume/",
        "/api/v1/approvals/{thread}/approve/", "/api/v1/webhooks/", "/api/v1/tokens/"]  # fmt: skip


@pytest.fixture
def thread(runtime, ann) -> Any:
    return Thread.objects.create(user=ann)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "text", "told"), BAD, ids=[one[0] for one in BAD])
def test_bad_json_is_refused_everywhere(ann, api, thread, echo, way, name, text, told):
    body = f'{{"graph": "echo", "input": {{"messages": ["hi"], "x": {text}}}}}'
    answer = api(ann).post(way.format(thread=thread.pk), body, content_type="application/json")
    assert answer.status_code == 400, answer.content[:300]
    assert answer.json()["code"] == "JSON_001"
    assert told in answer.json()["detail"]
    if "depth" not in name or name == "depth 100":
        assert answer.json()["path"].startswith("$.input.x")
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"graph": "\xff\xfe"}', 400),
        (b'{"graph": ', 400),
        (b"\xef\xbb\xbf{}", 400),
        (b'{"a": "' + b"x" * 2_000_000 + b'"}', 413),
        (b"[]", 400),
        (b'"text"', 400),
        (b"null", 400),
    ],
    ids=["no UTF-8", "cut", "BOM", "2 MB", "list", "text", "null"],
)
def test_bodies_that_are_no_object(ann, api, thread, body, status):
    for way in WAYS:
        answer = api(ann).post(way.format(thread=thread.pk), body, content_type="application/json")
        allowed = {status} if status == 413 or "threads" in way else {400, 404}
        assert answer.status_code in allowed, (way, answer.content[:200])
        assert answer.json().keys() >= {"code", "detail"}


def test_other_media_types_are_not_taken(ann, api, thread):
    for kind in ("text/plain", "application/xml", "application/x-www-form-urlencoded"):
        answer = api(ann).post("/api/v1/threads/", "title=x", content_type=kind)
        assert answer.status_code == 415
        assert answer.json()["code"] == "unsupported_media_type"


@pytest.mark.parametrize(("where", "statuses"), [("a%00b", {400, 404}), ("%ed%a0%80", {200, 404})])
def test_queries_and_paths_are_text(ann, api, runtime, where, statuses):
    # Django reads a broken sequence as the replacement character, which is text.
    for path in ("runs/?graph=", "approvals/?tool="):
        assert api(ann).get(f"/api/v1/{path}{where}").status_code in statuses, path
    assert api(ann).get(f"/api/v1/threads/{where}/").status_code in (400, 404)


@pytest.mark.parametrize("value", ["a\x00b", "\ud800"])
def test_forms_of_the_admin_are_checked_too(client, runtime, person, value):
    boss = person("boss", is_staff=True, is_superuser=True)
    client.force_login(boss)
    encoded = value.encode("utf-8", "surrogatepass")
    body = b"username=x&reason=" + b"".join(b"%%%02x" % one for one in encoded)
    kind = "application/x-www-form-urlencoded"
    for path in ("/admin/auth/user/add/", "/admin/login/", "/accounts/login/"):
        answer = client.post(path, body, content_type=kind)
        # Django reads a broken sequence as the replacement character, which is text.
        assert answer.status_code == (400 if "\x00" in value else answer.status_code) < 500


def test_good_json_passes_whole(ann, api, thread, echo):
    text = "‮ right to left, ‍ joined, é́́, 🙂"
    body = {"graph": echo, "input": {"messages": [text]}}
    answer = api(ann).post(f"/api/v1/threads/{thread.pk}/runs/", body, format="json")
    assert answer.status_code == 201
    assert thread.messages.get().content == text


@pytest.mark.parametrize("place", ["threads/", "runs/", "interrupts/", "approvals/", "webhooks/"])
@pytest.mark.parametrize("cursor", ["x", "cD0x", "cD14", "cD0lMDA%3D", "%ff", "a%00b"])
def test_a_cursor_that_was_made_up_is_refused(ann, api, runtime, place, cursor):
    answer = api(ann).get(f"/api/v1/{place}?cursor={cursor}")
    assert answer.status_code == 400, answer.content
    assert "cursor" in answer.json()["detail"]
