"""Ollama's own package for Python, unmodified, against a running router whose workers answer by agents/rules.json. Run by
agents_test.py with the pinned package.

usage: ollama_client.py BASE_URL MODEL
"""
import asyncio
import pathlib
import sys

import ollama

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checks import check, run_all  # noqa: E402

BASE_URL, MODEL = sys.argv[1:]
client = ollama.Client(host=BASE_URL, timeout=120)
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]
STORY = [{"role": "user", "content": "Tell me a story"}]


def get_weather(city: str, days: list) -> str:
    """The weather of a place.

    Args:
      city: its name
      days: which ones
    """


def refused(call, *args, **fields):
    try:
        answer = call(*args, **fields)
        if fields.get("stream"):
            list(answer)
    except ollama.ResponseError as error:
        return error
    raise AssertionError(f"nothing was refused: {fields}")


@check
def a_chat_streams_what_the_whole_says():
    whole = client.chat(MODEL, STORY, options={"seed": 7})
    assert whole.message.role == "assistant" and whole.message.content.startswith("Once upon a time"), whole
    parts = list(client.chat(MODEL, STORY, stream=True, options={"seed": 7}))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True] and len(parts) > 5, parts
    assert parts[-1].done_reason == whole.done_reason == "stop"


@check
def a_generation_streams_what_the_whole_says():
    whole = client.generate(MODEL, "Tell me a story", system="Be brief.", options={"seed": 7})
    parts = list(client.generate(MODEL, "Tell me a story", system="Be brief.", stream=True, options={"seed": 7}))
    assert "".join(part.response for part in parts) == whole.response != "", whole


@check
def counts_and_durations_are_of_the_answer():
    answer = client.chat(MODEL, STORY, options={"num_predict": 3})
    assert answer.done_reason == "length" and answer.eval_count == 3 and answer.prompt_eval_count > 5, answer
    assert answer.total_duration >= answer.prompt_eval_duration + answer.eval_duration > 0, answer
    assert answer.created_at.startswith("20") and answer.model == MODEL


@check
def tools_are_called_with_objects_and_their_results_come_back():
    answer = client.chat(MODEL, QUESTION, tools=[get_weather])
    message = answer.message
    assert message.thinking == "I need the weather." and message.content == "Let me look.", message
    assert [call.function.name for call in message.tool_calls] == ["get_weather", "get_time"]
    assert message.tool_calls[0].function.arguments == {"city": "Paris", "days": [1, 2]}
    parts = list(client.chat(MODEL, QUESTION, tools=[get_weather], stream=True))
    calls = [call for part in parts for call in part.message.tool_calls or []]
    assert [dict(call.function.arguments) for call in calls] == [{"city": "Paris", "days": [1, 2]}, {}], calls
    after = client.chat(MODEL, [*QUESTION, message, {"role": "tool", "tool_name": "get_weather", "content": "12 degrees"},
                                {"role": "tool", "tool_name": "get_time", "content": "noon"}], tools=[get_weather])
    assert after.message.content == "It is 12 degrees in Paris.", after


@check
def options_end_an_answer_and_unknown_ones_are_named():
    stopped = client.chat(MODEL, STORY, options=ollama.Options(stop=["four"], temperature=0.5, num_ctx=4096))
    assert stopped.message.content.endswith("three ") and stopped.done_reason == "stop", stopped
    error = refused(client.chat, MODEL, STORY, options={"temprature": 1})
    assert error.status_code == 400 and "options.temprature" in error.error, error
    error = refused(client.generate, MODEL, "x", stream=True, options={"mirostat": 2})
    assert error.status_code == 400 and error.error.startswith("options.mirostat: "), error


@check
def a_raw_prompt_is_the_whole_prompt():
    raw = client.generate(MODEL, "Tell me a story", raw=True)
    rendered = client.generate(MODEL, "Tell me a story")
    assert raw.prompt_eval_count < rendered.prompt_eval_count and raw.response == rendered.response, (raw, rendered)


@check
def models_are_listed_shown_and_seen_running():
    assert [model.model for model in client.list().models] == [MODEL]
    shown = client.show(MODEL)
    assert shown.capabilities == ["completion", "tools", "thinking"], shown
    assert shown.modelinfo["unknown.context_length"] == 131072, shown
    running = client.ps().models
    assert running[0].name == MODEL and running[0].context_length == 131072 and running[0].expires_at.year == 9999, running


@check
def a_name_may_have_the_tag_latest():
    assert client.chat(MODEL + ":latest", STORY).model == MODEL + ":latest"
    assert client.show(MODEL + ":latest").capabilities


@check
def without_a_prompt_the_model_is_there():
    assert client.generate(MODEL).done_reason == "load"
    answer = client.chat(MODEL, [])
    assert answer.done_reason == "load" and answer.message.content == ""


@check
def errors_are_the_packages_own():
    error = refused(client.chat, "no-such-model", STORY)
    assert error.status_code == 404 and "no-such-model" in error.error, error
    error = refused(client.chat, MODEL, [{"role": "user", "content": "what is this?", "images": ["aGk="]}])
    assert error.status_code == 400 and error.error.startswith("messages[0].images: "), error
    error = refused(client.generate, MODEL, "def f():", suffix="return x")
    assert error.status_code == 400 and error.error.startswith("suffix: "), error
    for call in (lambda: client.create("new", from_=MODEL), lambda: client.copy(MODEL, "new"), lambda: client.push(MODEL),
                 lambda: client.embed(MODEL, "x"), lambda: client.embeddings(MODEL, "x"), lambda: client.generate(MODEL, keep_alive=0)):
        assert refused(call).status_code == 501
    assert refused(client.pull, MODEL).status_code == 404, "a cluster's router pulls nothing"


@check
def the_asynchronous_client_streams_and_leaves():
    async def story():
        asking = ollama.AsyncClient(host=BASE_URL, timeout=120)
        text = "".join([part.message.content async for part in await asking.chat(MODEL, STORY, stream=True)])
        async for _ in await asking.chat(MODEL, STORY, stream=True):
            break
        return text
    assert asyncio.run(story()).endswith("nine ten.")


run_all("ollama")
