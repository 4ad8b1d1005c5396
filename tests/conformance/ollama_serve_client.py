"""Ollama's own package for Python, unmodified, against `quire serve` with a model of random weights: formats are enforced, and
the client loads and unloads the model. Run by agents_test.py with the pinned package.

usage: ollama_serve_client.py BASE_URL MODEL
"""
import datetime
import json
import pathlib
import sys
import typing

import ollama
from pydantic import BaseModel, ConfigDict

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checks import check, run_all  # noqa: E402

BASE_URL, MODEL = sys.argv[1:]
client = ollama.Client(host=BASE_URL, timeout=120)
ASK = [{"role": "user", "content": "Which animal?"}]
SHORT = {"num_predict": 200, "seed": 7}


class Animal(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: typing.Literal["cat", "dog"]
    legs: typing.Literal[3, 4]


def running():
    return {model.model: model for model in client.ps().models}


def seconds_left():
    return (running()[MODEL].expires_at - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


def refused(call, *args):
    try:
        call(*args)
    except ollama.ResponseError as error:
        return error
    raise AssertionError(f"nothing was refused: {args}")


@check
def a_schema_is_the_format_of_the_answer():
    schema = Animal.model_json_schema()
    whole = client.chat(MODEL, ASK, format=schema, think=False, options=SHORT)
    Animal.model_validate_json(whole.message.content)
    parts = client.generate(MODEL, "Which animal?", format=schema, think=False, stream=True, options=SHORT)
    Animal.model_validate_json("".join(part.response for part in parts))


@check
def logprobs_stand_beside_their_tokens():
    whole = client.generate(MODEL, "x", raw=True, logprobs=True, top_logprobs=2, options={"num_predict": 4, "temperature": 0})
    assert len(whole.logprobs) == 4 and all(len(one.top_logprobs) == 2 for one in whole.logprobs), whole
    assert all(one.logprob == one.top_logprobs[0].logprob for one in whole.logprobs), "the likeliest is taken"
    parts = client.chat(MODEL, ASK, logprobs=True, stream=True, options={"num_predict": 4})
    assert sum(len(part.logprobs or []) for part in parts) == 4


@check
def json_is_json():
    answer = client.generate(MODEL, "Say something", format="json", think=False, options={"num_predict": 400, "seed": 7})
    if answer.done_reason == "stop":
        assert isinstance(json.loads(answer.response), dict), answer
    else:
        assert answer.response.lstrip().startswith("{"), answer


@check
def a_model_is_loaded_kept_and_unloaded():
    assert client.generate(MODEL, keep_alive="10m").done_reason == "load"
    assert 500 < seconds_left() <= 601, running()
    client.generate(MODEL, "x", keep_alive=60, options={"num_predict": 1})
    assert 50 < seconds_left() <= 61, running()
    client.generate(MODEL, keep_alive=-1)
    assert running()[MODEL].expires_at.year == 9999, running()
    assert client.chat(MODEL, [], keep_alive=0).done_reason == "unload"
    assert running() == {}, running()
    details = client.show(MODEL).details
    assert (details.format, details.family, details.families) == ("safetensors", "llama", ["llama"]), details
    assert details.parameter_size.endswith("M") and details.quantization_level in ("BF16", "F16"), details
    assert client.list().models[0].details == details, "what was loaded once is known"
    assert [model.model for model in client.list().models] == [MODEL], "it is still a model of this machine"
    answer = client.generate(MODEL, "x", options={"num_predict": 1})
    assert answer.eval_count == 1 and MODEL in running(), answer


@check
def a_model_is_pulled_used_and_deleted():
    parts = list(client.pull("hf:org/demo", stream=True))
    assert parts[-1].status == "success" and any(part.total and part.completed == part.total for part in parts), parts
    assert client.pull("hf:org/demo").status == "success", "it is there already"
    assert {model.model for model in client.list().models} == {MODEL, "org/demo"}
    answer = client.generate("hf:org/demo", "Tell me a story", options={"num_predict": 8})
    assert answer.eval_count == 8 and set(running()) == {MODEL, "org/demo"}, (answer, running())
    assert client.generate(MODEL, "x", options={"num_predict": 1}).eval_count == 1, "the first model is still served"
    assert client.delete("org/demo").status == "success"
    assert [model.model for model in client.list().models] == [MODEL]
    assert refused(client.delete, "org/demo").status_code == 404
    assert refused(client.generate, "org/demo", "x").status_code == 404


@check
def what_a_client_may_not_pull_is_refused():
    for name in ("https://127.0.0.1/m.gguf", "/etc/passwd", "--connections=1", "s3://bucket/m", "oci://ghcr.io/org/m", "../demo"):
        error = refused(client.pull, name)
        assert error.status_code == 400 and error.error.startswith("model: may be a short name"), error
    assert refused(client.pull, "hf:org/absent").status_code == 404
    error = refused(client.pull, "no-such-model")
    assert error.status_code == 404 and "catalogue" in error.error, error
    error = refused(client.pull, "hf:org/elsewhere")  # whose weights are on another host of this network
    assert error.status_code == 403 and "private network" in error.error, error
    error = refused(client.delete, MODEL)
    assert error.status_code == 400 and "was not pulled" in error.error, error


run_all("ollama_serve")
