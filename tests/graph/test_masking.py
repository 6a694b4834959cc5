"""What is secret is hidden in values, and in the texts that hold them."""

import time

import pytest

from agentruntime.graph.masking import MASK, mask, mask_text

SECRET = ("password", "api_key", "token")
HIDDEN = f'"{MASK}"'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"password": "hunter2"}', f'{{"password": {HIDDEN}}}'),
        ('{"a": {"apiKey":"k"}, "b": 1}', f'{{"a": {{"apiKey":{HIDDEN}}}, "b": 1}}'),
        ('{"token": {"deep": [1, 2]}, "b": 1}', f'{{"token": {HIDDEN}, "b": 1}}'),
        ('{"password": 12345}', f'{{"password": {HIDDEN}}}'),
        ('{"password": "a\\"b", "n": 1}', f'{{"password": {HIDDEN}, "n": 1}}'),
        ('{"password": "cut off', f'{{"password": {HIDDEN}'),
        ('{"password": hunter2, "n": 1}', f'{{"password": {HIDDEN}, "n": 1}}'),
        ('{"password": "a", "password": "b"}', f'{{"password": {HIDDEN}, "password": {HIDDEN}}}'),
        ('It ran: {"token": "t"} (edited)', f'It ran: {{"token": {HIDDEN}}} (edited)'),
        ('{"tokens": 5, "text": "password"}', '{"tokens": 5, "text": "password"}'),
        ("no JSON at all", "no JSON at all"),
    ],
)
def test_a_secret_field_is_hidden_in_a_text_however_it_is_written(text, shown):
    assert mask_text(text, SECRET) == shown


def test_arguments_as_text_and_what_a_tool_said_are_such_texts():
    text = '{"password": "hunter2"}'
    calls = [{"name": "login", "arguments": text, "extra": {"text": text}}]

    assert "hunter2" not in str(mask({"role": "tool", "content": text}, SECRET))
    assert "hunter2" not in str(mask({"role": "assistant", "tool_calls": calls}, SECRET))
    assert mask({"role": "assistant", "content": text}, SECRET)["content"] == text


@pytest.mark.parametrize("text", ['"' * 300_000, '"a":' * 100_000, '{"token":' * 5_000])
def test_no_text_takes_long(text):
    begun = time.monotonic()
    mask_text(text, SECRET)

    assert time.monotonic() - begun < 5
