"""The unmodified tritonclient over HTTP, with tensors as bytes as it sends them unless told otherwise, against a running
router. Run by conformance_test.py with the pinned package.

usage: triton_http_client.py HOST:PORT MODEL
"""
import json
import pathlib
import sys

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checks import check, run_all  # noqa: E402

TARGET, MODEL = sys.argv[1], sys.argv[2]
client = triton.InferenceServerClient(TARGET)


def tensor(name, text, binary=True):
    made = triton.InferInput(name, [1], "BYTES")
    made.set_data_from_numpy(np.array([text.encode()], dtype=np.object_), binary_data=binary)
    return made


def asking(binary=True, **sampling):
    return [tensor("text_input", "Once upon a time", binary), tensor("sampling_parameters", json.dumps(sampling), binary)]


@check
def health_and_metadata():
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(MODEL)
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.get_model_metadata(MODEL)["name"] == MODEL


@check
def bytes_and_json_give_the_same():
    seen = set()
    for given in (True, False):
        for wanted in (None, True, False):
            outputs = None if wanted is None else [triton.InferRequestedOutput(name, binary_data=wanted)
                                                   for name in ("text_output", "output_ids")]
            result = client.infer(MODEL, asking(given, max_tokens=8, temperature=0), outputs=outputs, request_id="r")
            text = result.as_numpy("text_output")[0]
            ids = tuple(int(i) for i in result.as_numpy("output_ids"))
            assert result.get_response()["id"] == "r" and len(ids) == 8, (given, wanted, ids)
            seen.add((text.decode() if isinstance(text, bytes) else text, ids))
    assert len(seen) == 1, seen


@check
def ids_as_bytes_go_in():
    ids = triton.InferInput("input_ids", [3], "INT32")
    ids.set_data_from_numpy(np.array([5, 6, 7], dtype=np.int32))
    result = client.infer(MODEL, [ids, tensor("sampling_parameters", json.dumps({"max_tokens": 2, "ignore_eos": True}))])
    assert result.as_numpy("output_ids").shape == (2,)


@check
def several_at_once():
    pool = triton.InferenceServerClient(TARGET, concurrency=4)
    waiting = [pool.async_infer(MODEL, asking(max_tokens=4, seed=n)) for n in range(4)]
    assert all(w.get_result().as_numpy("output_ids").shape == (4,) for w in waiting)
    pool.close()


@check
def refusals_name_what_is_wrong():
    for inputs, word in ((asking(max_tokens=0), "max_tokens"), (asking(unheard_of=1), "unheard_of"),
                         ([tensor("no_such_tensor", "x")], "no_such_tensor")):
        try:
            client.infer(MODEL, inputs)
        except InferenceServerException as error:
            assert word in error.message(), error
        else:
            raise AssertionError("was served")


run_all("tritonclient over HTTP")
