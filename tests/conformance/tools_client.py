"""OpenAI's package and tools of chats: what its accumulators and its parser make of a model of random weights that is held to
calls. Run by agents_test.py with the pinned package.

usage: tools_client.py BASE_URL MODEL
"""
import json
import pathlib
import re
import sys
import typing

import openai
from pydantic import BaseModel, ConfigDict, Field

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checks import check, run_all  # noqa: E402

BASE_URL, MODEL = sys.argv[1] + "/v1", sys.argv[2]
client = openai.OpenAI(base_url=BASE_URL, api_key="unused", max_retries=0, timeout=120)
# Random weights never end a thought by themselves.
ASKED = {"model": MODEL, "messages": [{"role": "user", "content": "What is the weather?"}], "seed": 7, "max_tokens": 300,
         "tool_choice": "required", "extra_body": {"thinking_token_budget": 4}}


class GetWeather(BaseModel):
    """The weather of a place."""
    model_config = ConfigDict(extra="forbid")
    city: typing.Literal["Paris", "Ulm"]
    days: int = Field(ge=1, le=9)


class Ring(BaseModel):
    """Rings the bell."""
    model_config = ConfigDict(extra="forbid")
    loud: bool


TOOLS = [openai.pydantic_function_tool(GetWeather), openai.pydantic_function_tool(Ring)]


@check
def parse_makes_objects_of_the_calls():
    answer = client.chat.completions.parse(tools=TOOLS, **ASKED)
    calls = answer.choices[0].message.tool_calls
    assert calls and answer.choices[0].finish_reason == "tool_calls", answer
    for call in calls:
        assert isinstance(call.function.parsed_arguments, (GetWeather, Ring)), call


@check
def a_stream_accumulates_to_the_whole():
    whole = client.chat.completions.create(tools=TOOLS, **ASKED)
    done = []
    with client.chat.completions.stream(tools=TOOLS, **ASKED) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.done":
                done.append((event.index, event.name, event.arguments, type(event.parsed_arguments)))
        final = stream.get_final_completion()
    wanted, got = whole.choices[0], final.choices[0]
    assert got.finish_reason == wanted.finish_reason == "tool_calls", (got, wanted)
    assert [(c.id, c.function.name, c.function.arguments) for c in got.message.tool_calls] == [
        (c.id, c.function.name, c.function.arguments) for c in wanted.message.tool_calls]
    assert [d[:3] for d in done] == [(i, c.function.name, c.function.arguments) for i, c in enumerate(wanted.message.tool_calls)], done
    assert all(d[3] in (GetWeather, Ring) for d in done), done


@check
def a_named_function_is_called_once():
    for name in ("GetWeather", "Ring"):
        choice = {"type": "function", "function": {"name": name}}
        answer = client.chat.completions.parse(tools=TOOLS, **{**ASKED, "tool_choice": choice}).choices[0]
        assert [c.function.name for c in answer.message.tool_calls] == [name] and answer.finish_reason == "stop", answer


@check
def results_go_back_and_calls_come_again():
    first = client.chat.completions.create(tools=TOOLS, **ASKED).choices[0].message
    turns = [*ASKED["messages"], first.model_dump(exclude_none=True)]
    turns += [{"role": "tool", "tool_call_id": call.id, "content": "12 degrees"} for call in first.tool_calls]
    again = client.chat.completions.create(tools=TOOLS, **{**ASKED, "messages": turns}).choices[0]
    for call in again.message.tool_calls:
        assert isinstance(json.loads(call.function.arguments), dict), again


@check
def a_custom_tools_regular_expression_holds_where_a_call_is_demanded():
    code = {"type": "custom", "name": "code", "format": {"type": "grammar", "syntax": "regex", "definition": "[a-c]{3}-[0-9]{2}|\\d"}}
    whole = 0  # random weights may write blanks until they are cut short
    for seed in range(40):
        answer = client.responses.create(model=MODEL, input="Which?", tools=[code], tool_choice="required", max_output_tokens=300,
                                         extra_body={"thinking_token_budget": 4, "seed": seed})
        for call in (item for item in answer.output if item.type == "custom_tool_call" and answer.status == "completed"):
            assert re.fullmatch(r"[a-c]{3}-[0-9]{2}|\d", call.input), call
            whole += 1
        if whole >= 3:
            return
    raise AssertionError(f"{whole} whole calls")


@check
def an_unknown_function_is_refused_by_the_field():
    try:
        client.chat.completions.create(tools=TOOLS, **{**ASKED, "tool_choice": {"type": "function", "function": {"name": "No"}}})
    except openai.BadRequestError as error:
        assert error.param == "tool_choice", error
    else:
        raise AssertionError("it was taken")


run_all("openai tools")
