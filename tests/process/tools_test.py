"""Tools and thoughts from end to end: a real router and real workers serve models of random weights over real tokenizers, so that a
call is a call, and fits its schema, because it was enforced.
"""
import json
import os
import random
import signal

import jsonschema
import pytest

import random_model
from harness import Server, expect
from tier import LONG

CITY = {"type": "object", "additionalProperties": False, "required": ["city", "days"],
        "properties": {"city": {"enum": ["Paris", "Ulm", "São Paulo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
                       "units": {"enum": ["C", "F"]}}}
LAMP = {"type": "object", "additionalProperties": False, "required": ["on"],
        "properties": {"on": {"type": "boolean"}, "rooms": {"type": "array", "maxItems": 3, "items": {"enum": ["hall", "bath"]}}}}
NONE = {"type": "object", "additionalProperties": False, "properties": {}}
SCHEMAS = {"get_weather": CITY, "set_lamp": LAMP, "ring": NONE}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema, "strict": True}} for name, schema in SCHEMAS.items()]
QUESTION = [{"role": "user", "content": "Do what has to be done."}]
HARMONY = """{%- for message in messages -%}
<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>
{%- endfor -%}
{%- for tool in tools -%}<|start|>system<|message|>{{ tool | tojson }}<|end|>{%- endfor -%}
<|start|>assistant"""
BUDGET = 7
# Qwen3's model opens its thoughts itself, and random weights would spell that mark in any tokens: here they are open already.
PARSERS = {"qwen3": ["--reasoning-parser=deepseek_r1"], "gptoss": ["--tool-call-parser=openai", "--reasoning-parser=openai"]}
PAIRS = 2500 if LONG else 12  # of a choice of tools and a seed, for each tokenizer


@pytest.fixture(scope="module", params=PARSERS)
def server(request, tmp_path_factory):
    folder = random_model.make(request.param, tmp_path_factory.mktemp(request.param))
    flags = list(PARSERS[request.param])
    if request.param == "gptoss":  # the package has no template
        (folder / "harmony.jinja").write_text(HARMONY)
        flags.append(f"--chat-template={folder / 'harmony.jinja'}")
    with Server("--served-model-name=m", "--workers=2", "--max-model-len=4096", *flags, model=folder) as running:
        running.tokenizer = request.param
        yield running


def body(server, **fields):
    return {"model": "m", "messages": QUESTION, "tools": TOOLS, "max_tokens": 400, "temperature": 1.0,
            "thinking_token_budget": BUDGET, **fields}


def choice_of(server, asked):
    status, answer = server.post("/v1/chat/completions", asked)
    expect(status == 200, f"{asked}: {status} {answer}")
    return answer["choices"][0], answer["usage"]


def holds(choice, asked):
    """Every call is of a tool that may be called, and its arguments fit."""
    calls = choice["message"].get("tool_calls") or []
    whole = calls if choice["finish_reason"] in ("tool_calls", "stop") else calls[:-1]  # the last one was cut
    for call in whole:
        name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
        jsonschema.Draft202012Validator(SCHEMAS[name]).validate(arguments)
        if isinstance(asked["tool_choice"], dict):
            expect(name == asked["tool_choice"]["function"]["name"], f"{asked}: {choice}")
    return whole


def test_calls_that_are_demanded_come_and_fit_their_schemas(server):
    draw, finished = random.Random(5), 0
    demands = ["required", *({"type": "function", "function": {"name": name}} for name in SCHEMAS)]
    for _ in range(PAIRS):
        asked = body(server, tool_choice=draw.choice(demands), seed=draw.getrandbits(32), parallel_tool_calls=draw.random() < 0.5)
        choice, _ = choice_of(server, asked)
        whole = holds(choice, asked)
        if choice["finish_reason"] != "length":
            finished += 1
            expect(whole and not choice["message"].get("content"), f"{asked}: {choice}")
            one = asked["parallel_tool_calls"] is False or isinstance(asked["tool_choice"], dict)
            expect(not one or len(whole) == 1, f"{asked}: {choice}")
    expect(finished > PAIRS * 0.3, f"{finished} of {PAIRS} answers are whole")  # others are cut in a thought


def streamed(server, asked, on_event=lambda count: None):
    """(reasoning, content, calls with their ids, finish_reason) as a client puts it together."""
    reasoning, content, calls, finish = "", "", [], None
    for count, data in enumerate(server.stream("/v1/chat/completions", asked)):
        on_event(count)
        if data == "[DONE]":
            return reasoning, content, calls, finish
        event = json.loads(data)
        expect("error" not in event, event)
        for choice in event["choices"]:
            delta = choice["delta"]
            reasoning += delta.get("reasoning") or ""
            content += delta.get("content") or ""
            finish = choice["finish_reason"] or finish
            for piece in delta.get("tool_calls") or []:
                if piece.get("id"):
                    expect(piece["index"] == len(calls), event)
                    calls.append([piece["id"], piece["function"]["name"], ""])
                calls[piece["index"]][2] += piece["function"].get("arguments") or ""
    raise AssertionError("the stream ends without its end")


# Not over harmony's: the name of its channel is text, which random weights spell in any tokens.
@pytest.mark.parametrize("server", ["qwen3"], indirect=True)
def test_a_thought_ends_when_its_budget_is_used_up(server):
    for seed in range(4):
        # A grammar that demands calls makes this model end its thought; random weights alone would go on.
        asked = body(server, tool_choice="required", seed=seed)
        choice, usage = choice_of(server, asked)
        thought = usage["completion_tokens_details"]["reasoning_tokens"]
        expect(thought <= BUDGET + 3, f"{usage} {choice}")
        longer, more = choice_of(server, {**asked, "thinking_token_budget": 40})
        expect(more["completion_tokens_details"]["reasoning_tokens"] <= 43, more)
        if thought < BUDGET:  # it ended by itself, or there was none: a larger budget changes nothing
            expect(longer == choice, f"{longer} {choice}")
        else:
            expect(longer["message"]["reasoning"].startswith(choice["message"]["reasoning"].rstrip("\n�")), f"{longer} {choice}")


def test_a_killed_worker_changes_no_byte_of_a_thought_or_a_call(server):
    for seed, at in ((0, 4), (0, BUDGET + 4), (1, 30)):  # `quire serve` gives up a worker that dies five times in a minute
        asked = body(server, tool_choice="required", seed=seed, stream=True)
        choice, _ = choice_of(server, {**asked, "stream": False})
        wanted = streamed(server, asked)
        message = choice["message"]
        calls = [[c["id"], c["function"]["name"], c["function"]["arguments"]] for c in message.get("tool_calls") or []]
        whole = (message.get("reasoning") or "", message.get("content") or "", calls, choice["finish_reason"])
        expect(wanted == whole, f"{wanted} {choice}")
        server.wait_until(lambda: len(server.children("quire-worker")) == 2 and server.get("/health")[0] == 200, "two workers run")
        victim = random.Random(at).choice(server.children("quire-worker"))
        got = streamed(server, asked, lambda count: os.kill(victim, signal.SIGKILL) if count == at else None)
        expect(got == wanted, f"killed at event {at}: {got} != {wanted}")
