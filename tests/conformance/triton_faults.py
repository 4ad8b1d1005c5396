"""A worker is killed in the middle of ModelStreamInfer: every stream has the tokens and text of the undisturbed run.
Run by conformance_test.py with the pinned tritonclient; starts a router and two workers of its own."""
import json
import pathlib
import queue
import signal
import sys
import urllib.request

import numpy as np
import tritonclient.grpc as triton

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "process"))
from checks import check, run_all  # noqa: E402
from harness import BIN, DEMO, Process, metric_in, wait_until  # noqa: E402

STREAMS, TOKENS = 8, 900  # more than workers may be ahead of a client


def request(index):
    sampling = {"max_tokens": TOKENS, "seed": index, "temperature": 0.8 * (index % 2), "ignore_eos": True,
                "repetition_penalty": 1.1}
    inputs = []
    for name, value in (("text_input", f"Once upon a time {index}"), ("sampling_parameters", json.dumps(sampling))):
        inputs.append(triton.InferInput(name, [1], "BYTES"))
        inputs[-1].set_data_from_numpy(np.array([value.encode()], dtype=np.object_))
    return inputs


def streamed(target, kill=None):
    """All requests on one call; `kill` is called once, when some tokens of each are there."""
    heard = queue.Queue()
    tokens, texts, ended = {}, {}, 0
    with triton.InferenceServerClient(target) as client:
        client.start_stream(callback=lambda result, error: heard.put((result, error)))
        for index in range(STREAMS):
            client.async_stream_infer("demo", request(index), request_id=str(index))
        while ended < STREAMS:
            result, error = heard.get(timeout=120)
            assert error is None, error
            name = result.get_response().id
            tokens.setdefault(name, []).extend(int(i) for i in result.as_numpy("output_ids"))
            texts[name] = texts.get(name, b"") + result.as_numpy("text_output")[0]
            ended += result.get_response().parameters["triton_final_response"].bool_param
            if kill and len(tokens) == STREAMS and all(len(t) >= 3 for t in tokens.values()):
                kill()
                kill = None
        client.stop_stream()
    assert kill is None or kill is False, "the worker was not killed in mid-stream"
    return tokens, texts


def metric(port, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return metric_in(answer.read().decode(), name)


@check
def a_killed_worker_is_not_seen():
    command = [BIN / "quire-worker", "--model", DEMO, "--served-model-name=demo", "--listen=127.0.0.1:0",
               "--http-port=0", "--threads=1"]
    with Process(command) as one, Process(command) as other:
        wires = [worker.wait_for_line("ready: ").split()[1] for worker in (one, other)]
        router_command = [BIN / "quire-router", *(f"--worker={w}" for w in wires), "--port=0", "--grpc-port=0",
                          "--ready-fd=1", "--routing-policy=round-robin"]
        with Process(router_command) as router:
            line = json.loads(router.wait_for_line('"listen"'))
            port = int(line["listen"].rsplit(":", 1)[1])
            wait_until(lambda: metric(port, 'quire_router_workers{phase="ready"}') == 2, "both workers are there")
            wanted = streamed(line["grpc"])
            assert all(len(t) == TOKENS for t in wanted[0].values()), {k: len(t) for k, t in wanted[0].items()}
            had = streamed(line["grpc"], lambda: one.signal(signal.SIGKILL))
            assert had == wanted, "tokens or text differ from the undisturbed run"
            assert metric(port, "quire_router_carry_ons_total") > 0, "no stream was carried on"


run_all("triton")
