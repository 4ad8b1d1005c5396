"""The unmodified tritonclient against a running router. Run by conformance_test.py with the pinned package.

usage: triton_client.py HOST:PORT MODEL
"""
import json
import pathlib
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checks import check, run_all  # noqa: E402
from proto_fields import hold_to  # noqa: E402

TARGET, MODEL = sys.argv[1], sys.argv[2]
client = triton.InferenceServerClient(TARGET)
PROMPT = "Once upon a time"


def tensor(name, datatype, values, shape=None):
    made = triton.InferInput(name, shape or [len(values)], datatype)
    kinds = {"BYTES": np.object_, "BOOL": bool, "INT32": np.int32, "INT64": np.int64}
    made.set_data_from_numpy(np.array(values, dtype=kinds[datatype]).reshape(shape or [len(values)]))
    return made


def asking(text=PROMPT, stream=None, shape=None, **sampling):
    inputs = [tensor("text_input", "BYTES", [text.encode()], shape),
              tensor("sampling_parameters", "BYTES", [json.dumps(sampling).encode()], shape)]
    if stream is not None:
        inputs.append(tensor("stream", "BOOL", [stream], shape))
    return inputs


def refusal(call):
    try:
        call()
    except InferenceServerException as error:
        return error
    raise AssertionError("was served")


def stream_of(requests, count_finals=None, metadata=None):
    """Sends the requests on one stream; returns the responses by id and the errors, until every request had its last."""
    heard = queue.Queue()
    with triton.InferenceServerClient(TARGET) as own:
        own.start_stream(callback=lambda result, error: heard.put((result, error)), headers=metadata)
        for request in requests:
            own.async_stream_infer(MODEL, **request)
        answers, errors, finals = {}, [], 0
        while finals + len(errors) < (count_finals or len(requests)):
            result, error = heard.get(timeout=120)
            if error is not None:
                errors.append(error)
                continue
            response = result.get_response()
            answers.setdefault(response.id, []).append(result)
            finals += response.parameters["triton_final_response"].bool_param
        own.stop_stream()
    return answers, errors


def text_of(results):
    return b"".join(r.as_numpy("text_output")[0] for r in results if r.as_numpy("text_output") is not None).decode()


def ids_of(results):
    return [int(i) for r in results if r.as_numpy("output_ids") is not None for i in r.as_numpy("output_ids")]


@check
def our_proto_is_theirs():
    hold_to(service_pb2, model_config_pb2)


@check
def health_and_metadata():
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(MODEL, "1")
    server = client.get_server_metadata()
    assert server.name == "quire" and server.version, server
    model = client.get_model_metadata(MODEL)
    assert [t.name for t in model.inputs][:2] == ["text_input", "input_ids"], model
    config = client.get_model_config(MODEL, as_json=True)["config"]
    assert config["model_transaction_policy"]["decoupled"] is True, config
    assert "NOT_FOUND" in str(refusal(lambda: client.get_model_metadata("no-such-model")).status())
    assert "model_version" in str(refusal(lambda: client.infer(MODEL, asking(max_tokens=1), model_version="2")))


@check
def infer_gives_the_whole_text():
    for shape in ([1], [1, 1]):
        result = client.infer(MODEL, asking(max_tokens=8, temperature=0, shape=shape), request_id="one")
        assert result.get_response().id == "one"
        assert len(result.as_numpy("output_ids")) == 8 and result.as_numpy("text_output").shape == (1,)
        assert result.as_numpy("finish_reason")[0] == b"length"
    again = client.infer(MODEL, asking(max_tokens="8", temperature="0.0"))  # as Triton's own example writes them
    assert text_of([again]) == text_of([result])
    with_prompt = client.infer(MODEL, asking(max_tokens=8, temperature=0) + [
        tensor("exclude_input_in_output", "BOOL", [False])])
    assert text_of([with_prompt]) == PROMPT + text_of([result])


@check
def tokens_in_and_counts_out():
    outputs = [triton.InferRequestedOutput(n) for n in ("output_ids", "num_input_tokens", "num_output_tokens",
                                                        "cumulative_logprob", "logprobs")]
    first = client.infer(MODEL, asking("a b c", max_tokens=6, temperature=0, logprobs=2), outputs=outputs)
    count = int(first.as_numpy("num_input_tokens")[0])
    assert count > 1 and int(first.as_numpy("num_output_tokens")[0]) == 6
    assert first.as_numpy("text_output") is None and float(first.as_numpy("cumulative_logprob")[0]) < 0
    logprobs = json.loads(first.as_numpy("logprobs")[0])
    assert len(logprobs) == 6 and all(str(i) in one for i, one in zip(ids_of([first]), logprobs)), logprobs
    ids = [1] + ids_of([first])
    for datatype in ("INT32", "INT64"):
        answer = client.infer(MODEL, [tensor("input_ids", datatype, ids, [1, len(ids)])])
        assert len(ids_of([answer])) == 16


@check
def streams_answer_step_by_step():
    requests = [{"inputs": asking(f"{PROMPT} {i % 3}", max_tokens=6 + i, temperature=0, ignore_eos=True),
                 "request_id": f"r{i}"} for i in range(12)]
    answers, errors = stream_of(requests)
    assert not errors and len(answers) == 12, errors
    for i in range(12):
        results = answers[f"r{i}"]
        assert len(results) == len(ids_of(results)) == 6 + i, (i, len(results), len(ids_of(results)))
        finals = [r.get_response().parameters["triton_final_response"].bool_param for r in results]
        assert finals == [False] * (5 + i) + [True], finals
        reasons = [r.as_numpy("finish_reason") is not None for r in results]
        assert reasons == finals, reasons
    whole = client.infer(MODEL, asking(f"{PROMPT} 0", max_tokens=6, temperature=0, ignore_eos=True))
    assert text_of(answers["r0"]) == text_of([whole]) and ids_of(answers["r0"]) == ids_of([whole])


@check
def one_response_in_all_and_an_empty_last_one():
    answers, errors = stream_of([
        {"inputs": asking(stream=False, max_tokens=9, temperature=0), "request_id": "whole"},
        {"inputs": asking(stream=True, max_tokens=3, temperature=0), "request_id": "empty",
         "enable_empty_final_response": True}])
    assert not errors, errors
    assert len(answers["whole"]) == 1 and len(ids_of(answers["whole"])) == 9
    assert len(answers["empty"]) == 4 and not answers["empty"][-1].get_response().outputs
    assert answers["empty"][2].as_numpy("finish_reason")[0] == b"length"


@check
def errors_leave_the_stream_running():
    good = {"inputs": asking(max_tokens=4, temperature=0, ignore_eos=True)}
    answers, errors = stream_of([
        {**good, "request_id": "a"},
        {"inputs": asking(max_tokens=4, unheard_of=1), "request_id": "b"},
        {"inputs": [tensor("text", "BYTES", [b"x"])], "request_id": "c"},
        {"inputs": asking(max_tokens=4, n=2), "request_id": "d"},
        {**good, "request_id": "e", "sequence_id": 7},
        {**good, "request_id": "f"}])
    assert set(answers) == {"a", "f"}, answers.keys()
    told = "\n".join(sorted(str(e) for e in errors))
    for word in ("unheard_of", '"text"', "n: must be 1", "sequence_id"):
        assert word in told, told


@check
def bad_tensors_are_named():
    for inputs, name in [([tensor("text_input", "BYTES", [b"a", b"b"])], "text_input"),
                         ([tensor("text_input", "INT32", [1])], "text_input"),
                         ([tensor("input_ids", "INT32", [-1])], "input_ids"),
                         ([tensor("stream", "BOOL", [True])], "text_input"),
                         (asking(stream=True), "stream"),
                         ([triton.InferInput("text_input", [1], "BYTES")], "text_input")]:
        error = refusal(lambda inputs=inputs: client.infer(MODEL, inputs))
        assert "INVALID_ARGUMENT" in str(error.status()) and name in error.message(), error


@check
def what_is_not_served_says_so():
    for call in (client.get_model_repository_index, client.get_inference_statistics,
                 client.get_system_shared_memory_status, client.get_cuda_shared_memory_status,
                 client.get_trace_settings, client.get_log_settings, lambda: client.load_model(MODEL)):
        assert "UNIMPLEMENTED" in str(refusal(call).status())


@check
def a_cancelled_call_says_so():
    heard = queue.Queue()
    with triton.InferenceServerClient(TARGET) as own:
        own.start_stream(callback=lambda result, error: heard.put((result, error)))
        own.async_stream_infer(MODEL, asking(max_tokens=2000, ignore_eos=True), request_id="long")
        assert heard.get(timeout=60)[1] is None
        own.stop_stream(cancel_requests=True)
    while not heard.empty():
        error = heard.get()[1]
    assert error is not None and "CANCELLED" in str(error.status()), error


@check
def a_constraint_among_the_sampling_keys():
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False,
              "x-guidance": {"whitespace_flexible": False}}
    asks = [({"structured_outputs": {"json": schema}}, lambda text: json.loads(text)["a"] in (1, 2)),
            ({"guided_choice": ["yes", "no"]}, lambda text: text in ("yes", "no")),
            ({"guided_json": json.dumps(schema)}, lambda text: json.loads(text)["a"] in (1, 2))]
    for keys, holds in asks:
        inputs = asking(max_tokens=200, temperature=1.0, seed=2, **keys)
        text = client.infer(MODEL, inputs).as_numpy("text_output")[0].decode()
        assert holds(text), text
        answers, errors = stream_of([{"inputs": inputs, "request_id": "c"}])
        assert not errors and text_of(answers["c"]) == text, (errors, text)
    # As a parameter of the request, where values are texts.
    text = client.infer(MODEL, asking(max_tokens=9), parameters={"guided_regex": "[0-9]{3}"}).as_numpy("text_output")[0].decode()
    assert len(text) == 3 and text.isdigit(), text
    error = refusal(lambda: client.infer(MODEL, asking(guided_json={"not": {}})))
    assert "guided_json: " in error.message() and "INVALID_ARGUMENT" in error.status(), error


run_all("triton")
