"""The unmodified OpenAI client against a running router. Run by conformance_test.py with the pinned package.

usage: openai_client.py BASE_URL MODEL
"""
import concurrent.futures
import pathlib
import sys
import typing

import openai
from pydantic import BaseModel, Field

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checks import check, run_all  # noqa: E402

BASE_URL, MODEL = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=BASE_URL + "/v1", api_key="unused", max_retries=0, timeout=120)


def refusal(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"was served; wanted {kind.__name__}")


@check
def models_are_listed():
    ids = [model.id for model in client.models.list()]
    assert MODEL in ids, ids
    assert client.models.retrieve(MODEL).id == MODEL
    error = refusal(openai.NotFoundError, lambda: client.models.retrieve("no-such-model"))
    assert error.code == "model_not_found", error.code


@check
def completion():
    answer = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=8,
                                       temperature=0)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert answer.choices[0].text
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage.completion_tokens <= 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id


@check
def completion_default_length_is_16():
    answer = client.completions.create(model=MODEL, prompt="Once upon a time", temperature=0,
                                       extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16, answer.usage


@check
def completion_stream_equals_whole():
    whole = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=24,
                                      temperature=0)
    chunks = list(client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=24,
                                            temperature=0, stream=True,
                                            stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    assert len({c.id for c in chunks}) == 1 and len({c.created for c in chunks}) == 1


@check
def prompts_as_lists_and_token_ids():
    two = client.completions.create(model=MODEL, prompt=["Once upon", "The cat"], max_tokens=4,
                                    temperature=0, extra_body={"return_token_ids": True})
    assert [c.index for c in two.choices] == [0, 1]
    ids = [c.prompt_token_ids for c in two.choices]
    again = client.completions.create(model=MODEL, prompt=ids, max_tokens=4, temperature=0)
    assert [c.text for c in again.choices] == [c.text for c in two.choices]
    one = client.completions.create(model=MODEL, prompt=ids[1], max_tokens=4, temperature=0)
    assert one.choices[0].text == two.choices[1].text


@check
def a_prediction_changes_no_answer_and_is_in_the_usage():
    ask = {"model": MODEL, "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 40, "temperature": 0}
    plain = client.chat.completions.create(**ask)
    assert plain.usage.completion_tokens_details is None
    text = plain.choices[0].message.content
    for content in (text, [{"type": "text", "text": text[:7]}, {"type": "text", "text": text[7:]}]):
        told = client.chat.completions.create(**ask, prediction={"type": "content", "content": content})
        assert told.choices[0].message.content == text
        assert told.usage.completion_tokens == plain.usage.completion_tokens
        details = told.usage.completion_tokens_details
        assert 0 < details.accepted_prediction_tokens < told.usage.completion_tokens, details
    *_, last = client.chat.completions.create(**ask, prediction={"type": "content", "content": text[:8] + " 17 zebras"},
                                              stream=True, stream_options={"include_usage": True})
    assert last.usage.completion_tokens_details.rejected_prediction_tokens > 0
    error = refusal(openai.BadRequestError,
                    lambda: client.chat.completions.create(**ask, prediction={"type": "text", "content": text}))
    assert error.param == "prediction" and "content" in str(error), error


@check
def seeds_repeat():
    def draw(seed):
        return client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=16,
                                         temperature=1.0, seed=seed).choices[0].text
    assert draw(7) == draw(7)
    assert len({draw(seed) for seed in range(4)}) > 1


@check
def echo_scores_the_prompt_as_it_was_generated():
    prompt, keep = "Once upon a time", {"return_token_ids": True, "ignore_eos": True}
    written = client.completions.create(model=MODEL, prompt=prompt, max_tokens=12, temperature=0, logprobs=2,
                                        extra_body=keep).choices[0]
    whole = written.prompt_token_ids + written.token_ids
    scored = client.completions.create(model=MODEL, prompt=whole, max_tokens=0, echo=True, logprobs=2)
    choice = scored.choices[0]
    assert choice.text.endswith(written.text), choice.text
    assert choice.finish_reason == "length" and scored.usage.completion_tokens == 0
    assert len(choice.logprobs.tokens) == len(whole) == scored.usage.prompt_tokens
    assert choice.logprobs.token_logprobs[0] is None and choice.logprobs.top_logprobs[0] is None
    assert choice.logprobs.token_logprobs[-12:] == written.logprobs.token_logprobs
    assert choice.logprobs.top_logprobs[-12:] == written.logprobs.top_logprobs
    assert all(len(top) in (2, 3) for top in choice.logprobs.top_logprobs[1:])


@check
def echo_stands_before_the_answer_streamed_and_not():
    def ask(**more):
        return client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=6, temperature=0,
                                         echo=True, logprobs=1, **more)
    whole = ask().choices[0]
    plain = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=6,
                                      temperature=0).choices[0]
    assert whole.text == "Once upon a time" + plain.text, whole.text
    chunks = [c.choices[0] for c in ask(stream=True)]
    assert "".join(c.text for c in chunks) == whole.text
    joined = [value for c in chunks if c.logprobs for value in c.logprobs.token_logprobs]
    assert joined == whole.logprobs.token_logprobs
    offsets = [value for c in chunks if c.logprobs for value in c.logprobs.text_offset]
    assert offsets == whole.logprobs.text_offset
    for token, offset, following in zip(whole.logprobs.tokens, offsets, offsets[1:]):
        assert whole.text[offset:following] in (token, ""), (token, offset, following)


@check
def prompt_logprobs_as_vllm_shows_them():
    body = {"prompt_logprobs": 2}
    answer = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=1, temperature=0,
                                       extra_body={**body, "return_token_ids": True}).choices[0]
    assert answer.prompt_logprobs[0] is None
    for token, place in zip(answer.prompt_token_ids[1:], answer.prompt_logprobs[1:]):
        own = place[str(token)]
        assert own["logprob"] <= 0 and own["rank"] >= 1 and "decoded_token" in own
        best = sorted((entry for entry in place.values()), key=lambda entry: entry["rank"])
        assert [entry["rank"] for entry in best[:2]] == [1, 2]
        assert [entry["logprob"] for entry in best] == sorted((entry["logprob"] for entry in best), reverse=True)
    messages = [{"role": "user", "content": "Tell me a story."}]
    chat_answer = client.chat.completions.create(model=MODEL, max_tokens=1, messages=messages, extra_body=body)
    assert len(chat_answer.prompt_logprobs) == chat_answer.usage.prompt_tokens
    first = next(iter(client.chat.completions.create(model=MODEL, max_tokens=1, messages=messages, stream=True,
                                                     extra_body=body)))
    assert first.prompt_logprobs == chat_answer.prompt_logprobs


@check
def truncation_keeps_the_end_of_the_prompt():
    def ask(prompt, **more):
        return client.completions.create(model=MODEL, prompt=prompt, max_tokens=4, temperature=0,
                                         extra_body={"return_token_ids": True, **more})
    ids = ask("Once upon a time there was a cat").choices[0].prompt_token_ids
    cut = ask(ids, truncate_prompt_tokens=3)
    assert cut.choices[0].prompt_token_ids == ids[-3:] and cut.usage.prompt_tokens == 3
    assert cut.choices[0].token_ids == ask(ids[-3:]).choices[0].token_ids
    assert ask(ids * 2000, truncate_prompt_tokens=-1).usage.prompt_tokens > 3


@check
def chat():
    answer = client.chat.completions.create(model=MODEL, max_tokens=8, temperature=0,
                                            messages=[{"role": "user", "content": "Tell me a story."}])
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content


@check
def chat_stream_equals_whole():
    messages = [{"role": "user", "content": [{"type": "text", "text": "Tell me a story."}]}]
    whole = client.chat.completions.create(model=MODEL, max_completion_tokens=24, temperature=0,
                                           messages=messages)
    chunks = list(client.chat.completions.create(model=MODEL, max_completion_tokens=24, temperature=0,
                                                 messages=messages, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert all(c.object == "chat.completion.chunk" for c in chunks)


@check
def stop_strings():
    whole = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=24,
                                      temperature=0).choices[0].text
    stop = whole[len(whole) // 2:len(whole) // 2 + 3]
    answer = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=24,
                                       temperature=0, stop=[stop]).choices[0]
    assert answer.finish_reason == "stop" and answer.text == whole[:whole.index(stop)]
    assert answer.stop_reason == stop


@check
def leaving_a_stream_early():
    stream = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=512,
                                       temperature=0, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    assert client.completions.create(model=MODEL, prompt="x", max_tokens=1).choices


@check
def many_at_once():
    def ask(index):
        return client.completions.create(model=MODEL, prompt=f"Once upon a time {index % 4}",
                                         max_tokens=12, temperature=0).choices[0].text
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(ask, range(32)))
    for index, text in enumerate(texts):
        assert text == texts[index % 4]


class Pet(BaseModel):
    kind: typing.Literal["cat", "dog", "owl"]
    age: int = Field(ge=0, le=20)


class Owner(BaseModel):
    name: str = Field(max_length=12)
    pets: list[Pet] = Field(max_length=3)
    town: typing.Optional[typing.Literal["Ulm", "Bern"]]


def pets(**more):
    return {"model": MODEL, "messages": [{"role": "user", "content": "A pet."}], "seed": 5, "max_tokens": 1900, **more}


# The demo model writes white space wherever it may: larger objects do without.
COMPACT = {"structured_outputs": {"disable_any_whitespace": True}}


@check
def parse_gives_an_object():
    answer = client.chat.completions.parse(**pets(), response_format=Pet, n=3)
    for choice in answer.choices:
        assert choice.finish_reason == "stop" and isinstance(choice.message.parsed, Pet), choice
        assert choice.message.refusal is None
    for ask in (client.chat.completions.parse, client.beta.chat.completions.parse):
        parsed = ask(**pets(), response_format=Owner, extra_body=COMPACT).choices[0].message.parsed
        assert isinstance(parsed, Owner), parsed


@check
def parse_streams_the_same_object():
    asking = pets(response_format=Owner, extra_body=COMPACT)
    whole = client.chat.completions.parse(**asking).choices[0].message
    with client.chat.completions.stream(**asking) as stream:
        kinds = {event.type for event in stream}
        streamed = stream.get_final_completion().choices[0].message
    assert {"content.delta", "content.done"} <= kinds, kinds
    assert streamed.content == whole.content and streamed.parsed == whole.parsed


@check
def an_answer_that_is_cut_says_so():
    refusal(openai.LengthFinishReasonError,
            lambda: client.chat.completions.parse(**pets(max_tokens=3), response_format=Pet))


@check
def a_schema_that_is_not_compiled_is_refused_by_its_path():
    def ask(schema):
        return lambda: client.chat.completions.create(**pets(), response_format={
            "type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
    error = refusal(openai.BadRequestError, ask({"properties": {"a": {"not": {"type": "string"}}}}))
    assert error.param == "response_format.json_schema.schema", error.message
    assert "/properties/a" in error.message and "not" in error.message, error.message
    assert error.type == "invalid_request_error"
    error = refusal(openai.BadRequestError, lambda: client.chat.completions.create(
        **pets(), response_format={"type": "json_object"}, extra_body={"guided_regex": "a"}))
    assert error.param == "guided_regex" and "response_format" in error.message, error.message


@check
def bad_requests_name_their_field():
    def ask(**fields):
        return lambda: client.completions.create(**{"model": MODEL, "prompt": "x", **fields})
    for fields, param in [({"max_tokens": 0}, "max_tokens"), ({"temperature": -1}, "temperature"),
                          ({"prompt": ""}, "prompt"), ({"max_tokens": 10**6}, "max_tokens"),
                          ({"prompt": "a " * 20000}, "prompt"), ({"best_of": 3}, "best_of"),
                          ({"suffix": "end"}, "suffix"),
                          ({"extra_body": {"top_p": "x"}}, "top_p")]:
        error = refusal(openai.BadRequestError, ask(**fields))
        assert error.param == param, (fields.keys(), error.param, error.message)
    chat = [{"role": "user", "content": "a " * 20000}]
    for param, too_long in [("prompt", ask(prompt="a " * 20000)),
                            ("messages", lambda: client.chat.completions.create(model=MODEL, messages=chat))]:
        error = refusal(openai.BadRequestError, too_long)
        assert error.code == "context_length_exceeded" and error.param == param, error.message
        assert error.type == "invalid_request_error", error.type
    error = refusal(openai.NotFoundError, ask(model="no-such-model"))
    assert error.code == "model_not_found" and error.param == "model"
    # Fields that nobody knows do no harm.
    assert ask(max_tokens=1, extra_body={"no_such_field": 1})().choices


run_all("openai")
