"""The unmodified KServe SDK against a running router, over gRPC and REST. Run by conformance_test.py with the pinned package.

usage: kserve_client.py HTTP_HOST:PORT GRPC_HOST:PORT MODEL
"""
import asyncio
import json
import pathlib
import sys

import grpc
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.grpc import grpc_predict_v2_pb2

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checks import check, run_all  # noqa: E402
from proto_fields import hold_to  # noqa: E402

HTTP, GRPC, MODEL = sys.argv[1:4]
URL = f"http://{HTTP}"
PROMPT = "Once upon a time"


def request(text=PROMPT, binary=None, parameters=None, **sampling):
    inputs = []
    for name, value in (("text_input", text), ("sampling_parameters", json.dumps(sampling))):
        inputs.append(InferInput(name, [1], "BYTES"))
        array = np.array([value.encode()], dtype=np.object_)
        inputs[-1].set_data_from_numpy(array, binary_data=binary)
    return InferRequest(model_name=MODEL, request_id="one", infer_inputs=inputs, parameters=parameters or {})


def over_grpc(act):
    async def run():
        async with InferenceGRPCClient(GRPC) as client:
            return await act(client)
    return asyncio.run(run())


def text_of(response):
    outputs = {o.name: o for o in response.outputs}
    value = outputs["text_output"].as_numpy()[0]
    return value.decode() if isinstance(value, bytes) else value


@check
def our_proto_is_theirs():
    hold_to(grpc_predict_v2_pb2, lacks=(
        "InferParameter.double_param", "InferParameter.uint64_param", "ModelStreamInfer",
        "GRPCInferenceService/ModelStreamInfer", "ModelConfig", "GRPCInferenceService/ModelConfig", "ModelInput",
        "ModelOutput", "DataType", "ModelTransactionPolicy"))


@check
def grpc_health():
    assert over_grpc(lambda c: c.is_server_live()) and over_grpc(lambda c: c.is_server_ready())
    assert over_grpc(lambda c: c.is_model_ready(MODEL))


@check
def grpc_infer():
    texts = set()
    for binary in (False, True):
        response = over_grpc(lambda c, b=binary: c.infer(request(binary=b, max_tokens=8, temperature=0)))
        assert response.id == "one" and response.model_name == MODEL
        texts.add(text_of(response))
    typed = over_grpc(lambda c: c.infer(request(binary=False, parameters={"binary_data_output": False},
                                                max_tokens=8, temperature=0)))
    texts.add(text_of(typed))
    assert len(texts) == 1, texts


@check
def grpc_refusals():
    for asked, word in ((request(max_tokens=0), "max_tokens"), (request(unheard_of=1), "unheard_of")):
        try:
            over_grpc(lambda c, a=asked: c.infer(a))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and word in error.details(), error
        else:
            raise AssertionError("was served")


def over_rest(act):
    async def run():
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            return await act(client)
    return asyncio.run(run())


@check
def rest_health():
    assert over_rest(lambda c: c.is_server_live(URL)) is True
    assert over_rest(lambda c: c.is_server_ready(URL)) is True
    assert over_rest(lambda c: c.is_model_ready(URL, MODEL)) is True


@check
def rest_infer():
    expected = text_of(over_grpc(lambda c: c.infer(request(binary=False, max_tokens=8, temperature=0))))
    for binary, parameters in ((False, None), (True, None), (True, {"binary_data_output": True})):
        asked = request(binary=binary, parameters=parameters, max_tokens=8, temperature=0)
        response = over_rest(lambda c, a=asked: c.infer(URL, a, model_name=MODEL))
        assert response.id == "one" and response.model_name == MODEL
        assert text_of(response) == expected, (binary, parameters, text_of(response), expected)


@check
def rest_refusals():
    try:
        over_rest(lambda c: c.infer(URL, request(binary=False, max_tokens=0), model_name=MODEL))
    except httpx.HTTPStatusError as error:
        assert error.response.status_code == 400 and "max_tokens" in str(error), error
    else:
        raise AssertionError("was served")


run_all("kserve")
