"""The unmodified OpenAI client on /v1/responses, against a running router whose workers answer by agents/rules.json. Run by
agents_test.py.

usage: responses_client.py BASE_URL MODEL
"""
import json
import sys

import openai

from checks import check, run_all

BASE, MODEL = sys.argv[1:]
client = openai.OpenAI(base_url=BASE + "/v1", api_key="unused", max_retries=0, timeout=120)
TOOLS = [{"type": "function", "name": "get_weather", "description": "The weather.", "strict": False, "parameters": {
             "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "array"}}, "required": ["city"]}},
         {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}, "strict": False},
         {"type": "web_search"}]
SEED = {"seed": 7}  # the ids of calls derive from it
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]


def ask(**fields):
    return client.responses.create(**{"model": MODEL, "input": QUESTION, "tools": TOOLS, "extra_body": SEED, **fields})


def streamed(**fields):
    with client.responses.stream(**{"model": MODEL, "input": QUESTION, "tools": TOOLS, "extra_body": SEED, **fields}) as stream:
        events = list(stream)
        return events, stream.get_final_response()


def refusal(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError("nothing was refused")


def items(response):
    """Without ids, which differ from request to request."""
    found = []
    for item in response.output:
        one = item.to_dict()
        one.pop("id")
        one.pop("parsed_arguments", None)
        for part in one.get("content") or []:
            part.pop("parsed", None)
        found.append(one)
    return found


@check
def a_call_is_answered_and_its_result_taken():
    response = ask()
    assert [i.type for i in response.output] == ["reasoning", "message", "function_call", "function_call"], response
    call = response.output[2]
    assert call.name == "get_weather" and json.loads(call.arguments) == {"city": "Paris", "days": [1, 2]}
    assert response.status == "completed" and response.usage.output_tokens_details.reasoning_tokens > 0
    assert response.output[0].content[0].text.strip() == "I need the weather."
    results = [{"type": "function_call_output", "call_id": i.call_id, "output": "12 degrees"}
               for i in response.output if i.type == "function_call"]
    after = ask(input=QUESTION + [i.to_dict() for i in response.output] + results)
    assert after.output_text == "It is 12 degrees in Paris.", after


@check
def a_stream_accumulates_to_the_whole():
    whole = ask()
    events, final = streamed()
    assert items(final) == items(whole) and final.usage.to_dict() == whole.usage.to_dict()
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    snapshots = [e.snapshot for e in events if e.type == "response.function_call_arguments.delta" and e.output_index == 2]
    assert snapshots[-1] == whole.output[2].arguments
    done = [e.item.id for e in events if e.type == "response.output_item.done"]
    assert done == [i.id for i in final.output] and len(set(done)) == 4


@check
def thoughts_come_back_packed():
    response = ask(include=["reasoning.encrypted_content"], store=False)
    thought = response.output[0].to_dict()
    assert len(thought["encrypted_content"]) > 20 and response.to_dict()["store"] is False
    thought.pop("content")
    ask(input=QUESTION + [thought, {"role": "user", "content": "12 degrees"}])


@check
def a_custom_tool_gets_its_text():
    tool = {"type": "custom", "name": "apply_patch", "description": "Edits files.",
            "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" /.+/'}}
    events, final = streamed(input="Patch it", tools=[tool])
    assert final.output[0].type == "custom_tool_call", final.output
    assert final.output[0].input == '*** Begin Patch\n+héllo "x"\n*** End Patch'
    assert "".join(e.delta for e in events if e.type == "response.custom_tool_call_input.delta") == final.output[0].input


@check
def a_function_of_a_namespace_has_its_own_name():
    tools = [{"type": "namespace", "name": "web", "description": "The web.", "tools": [
        {"type": "function", "name": "fetch", "parameters": {"type": "object"}}]}]
    events, final = streamed(input="Fetch the page", tools=tools)
    call = final.output[0]
    assert (call.type, call.namespace, call.name, call.arguments) == ("function_call", "web", "fetch", '{"url": "x"}'), call
    asked = [{"role": "user", "content": "Fetch the page"}, call.to_dict(exclude_unset=True),
             {"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees"}]
    asked[1].pop("parsed_arguments", None)
    assert ask(input=asked, tools=tools).output_text == "It is 12 degrees in Paris."


@check
def an_answer_that_is_cut_is_incomplete():
    response = ask(input="Tell me a story", max_output_tokens=3)
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert ask(input="Tell me a story", max_output_tokens=1_000_000).status == "completed"


@check
def tokens_are_counted_as_they_are_used():
    counted = client.responses.input_tokens.count(model=MODEL, input=QUESTION, tools=TOOLS, instructions="Be brief.")
    assert counted.input_tokens == ask(instructions="Be brief.").usage.input_tokens


@check
def a_kept_response_is_continued_read_and_deleted():
    first = ask()
    assert first.to_dict()["store"] is True
    read = client.responses.retrieve(first.id)
    assert read.to_dict() == first.to_dict()
    asked = client.responses.input_items.list(first.id).data
    assert [item.role for item in asked] == ["user"] and asked[0].content == QUESTION[0]["content"], asked
    results = [{"type": "function_call_output", "call_id": i.call_id, "output": "12 degrees"}
               for i in first.output if i.type == "function_call"]
    second = ask(input=results, previous_response_id=first.id)
    assert second.output_text == "It is 12 degrees in Paris." and second.previous_response_id == first.id, second
    whole = ask(input=QUESTION + [i.to_dict() for i in first.output] + results)
    assert second.usage.input_tokens == whole.usage.input_tokens, "the conversation is not the same"
    referred = ask(input=QUESTION + [{"type": "item_reference", "id": i.id} for i in first.output] + results)
    assert referred.usage.input_tokens == whole.usage.input_tokens and items(referred) == items(second)
    items_of_second = client.responses.input_items.list(second.id).data
    assert [i.type for i in items_of_second] == ["message", "reasoning", "message", "function_call", "function_call",
                                                 "function_call_output", "function_call_output"], items_of_second
    client.responses.delete(first.id)
    gone = refusal(openai.NotFoundError, lambda: client.responses.retrieve(first.id))
    assert "not found" in str(gone), gone
    assert client.responses.retrieve(second.id).output_text == second.output_text
    assert "ended" in str(refusal(openai.BadRequestError, lambda: client.responses.cancel(second.id)))
    kept = ask(store=False)
    refusal(openai.NotFoundError, lambda: client.responses.retrieve(kept.id))


@check
def errors_are_openais():
    earlier = refusal(openai.BadRequestError, lambda: ask(previous_response_id="resp_1"))
    assert earlier.code == "previous_response_not_found", earlier
    refusal(openai.NotFoundError, lambda: client.responses.retrieve("resp_1"))
    refusal(openai.NotFoundError, lambda: client.responses.delete("resp_1"))
    refusal(openai.NotFoundError, lambda: client.responses.cancel("resp_1"))
    refusal(openai.BadRequestError, lambda: ask(background=True))
    demanded = refusal(openai.BadRequestError, lambda: ask(tool_choice={"type": "web_search"}))
    assert "web_search" in str(demanded) and demanded.param == "tool_choice", demanded
    image = refusal(openai.BadRequestError, lambda: ask(input=[{"role": "user", "content": [
        {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}]}]))
    assert "input[0].content[0]" in str(image), image


run_all("responses")
