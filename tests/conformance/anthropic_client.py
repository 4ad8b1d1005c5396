"""The unmodified Anthropic client against a running router whose workers answer by agents/rules.json. Run by agents_test.py.

usage: anthropic_client.py BASE_URL MODEL
"""
import sys

import anthropic

from checks import check, run_all

BASE, MODEL = sys.argv[1:]
client = anthropic.Anthropic(base_url=BASE, api_key="unused", max_retries=0, timeout=120)
TOOLS = [{"name": "get_weather", "description": "The weather.", "input_schema": {
             "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "array"}}, "required": ["city"]},
          "cache_control": {"type": "ephemeral"}},
         {"name": "get_time", "input_schema": {"type": "object", "properties": {}}},
         {"type": "web_search_20250305", "name": "web_search"}]
SEED = {"seed": 7}  # the ids of calls derive from it
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]


def ask(**fields):
    return client.messages.create(**{"model": MODEL, "max_tokens": 200, "messages": QUESTION, "tools": TOOLS, "extra_body": SEED, **fields})


def streamed(**fields):
    with client.messages.stream(**{"model": MODEL, "max_tokens": 200, "messages": QUESTION, "tools": TOOLS, "extra_body": SEED, **fields}) as stream:
        events = list(stream)
        return events, stream.get_final_message()


@check
def a_call_is_answered_and_its_result_taken():
    message = ask()
    assert [b.type for b in message.content] == ["thinking", "text", "tool_use", "tool_use"], message
    assert message.stop_reason == "tool_use" and message.content[2].input == {"city": "Paris", "days": [1, 2]}
    assert message.content[3].name == "get_time" and message.content[3].input == {}
    assert message.content[0].thinking.strip() == "I need the weather." and message.content[0].signature
    results = [{"type": "tool_result", "tool_use_id": b.id, "content": [{"type": "text", "text": "12 degrees"}]}
               for b in message.content if b.type == "tool_use"]
    after = ask(messages=QUESTION + [message.to_param(), {"role": "user", "content": results}])
    assert after.content[0].text == "It is 12 degrees in Paris." and after.stop_reason == "end_turn", after


@check
def a_stream_accumulates_to_the_whole():
    whole = ask()
    events, final = streamed()
    assert [b.to_dict() for b in final.content] == [b.to_dict() for b in whole.content]
    assert final.stop_reason == "tool_use" and final.usage.output_tokens == whole.usage.output_tokens
    kinds = {event.type for event in events}
    assert {"message_start", "thinking", "text", "input_json", "content_block_stop", "message_stop"} <= kinds, kinds
    assert "".join(e.partial_json for e in events if e.type == "input_json") == \
        '{"city": "Paris", "days": [1, 2]}{}', events


@check
def omitted_thoughts_come_back_in_their_signature():
    _, final = streamed(thinking={"type": "adaptive", "display": "omitted"})
    thought = final.content[0]
    assert thought.type == "thinking" and thought.thinking == "" and len(thought.signature) > 20
    ask(messages=QUESTION + [final.to_param(), {"role": "user", "content": "12 degrees"}])


@check
def the_cache_shows_in_the_usage():
    first = ask(messages=[{"role": "user", "content": "Tell me a story of " + "cats and dogs " * 40}])
    again = ask(messages=[{"role": "user", "content": "Tell me a story of " + "cats and dogs " * 40}])
    assert again.usage.cache_read_input_tokens > 0.9 * (again.usage.input_tokens + again.usage.cache_read_input_tokens)
    total = [u.input_tokens + u.cache_read_input_tokens for u in (first.usage, again.usage)]
    assert total[0] == total[1], total


@check
def tokens_are_counted_as_they_are_used():
    counted = client.messages.count_tokens(model=MODEL, messages=QUESTION, tools=TOOLS[:2], system="Be brief.")
    used = ask(tools=TOOLS[:2], system="Be brief.").usage
    assert counted.input_tokens == used.input_tokens + used.cache_read_input_tokens


@check
def limits_and_stop_sequences_say_why():
    story = [{"role": "user", "content": "Tell me a story"}]
    assert ask(messages=story, max_tokens=3).stop_reason == "max_tokens"
    stopped = ask(messages=story, stop_sequences=["four"])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == "four", stopped
    assert stopped.content[0].text.endswith("three ")
    assert ask(messages=story, max_tokens=1_000_000).stop_reason == "end_turn"


@check
def errors_are_anthropics():
    def refusal(kind, **fields):
        try:
            ask(**fields)
        except kind as error:
            return error
        raise AssertionError(f"nothing was refused: {fields}")
    error = refusal(anthropic.BadRequestError, messages=[{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]}])
    assert error.body["error"]["type"] == "invalid_request_error" and "image" in str(error), error
    assert error.request_id, "no request-id"
    assert refusal(anthropic.NotFoundError, model="no-such-model").body["type"] == "error"
    assert "web_search" in str(refusal(anthropic.BadRequestError, tool_choice={"type": "tool", "name": "web_search"}))


run_all("anthropic")
