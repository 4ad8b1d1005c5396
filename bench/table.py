"""Every figure of bench/results/, and the code that it measures."""
from typing import NamedTuple

ENGINE = ("worker/engine", "worker/scheduler", "worker/kv", "worker/runner", "worker/sample")
CPU = ("kernels/cpu", "kernels/sampling", "worker/model")
ROUTER = ("router", "common/http2", "common/grpc", "common/tls", "common/text")
WIRE = ("worker/rpc", "common/wire")


class Bench(NamedTuple):
    file: str  # in bench/results/, without .json
    measures: tuple  # files and folders of the tree
    elsewhere: str = ""  # the command that records it, where that is not ./dev bench


BENCHES = {
    "prefix-cache": Bench("prefix_cache", ("worker/kv", "worker/engine")),
    "cpu": Bench("cpu", (*CPU, *ENGINE)),
    "models": Bench("models", (*CPU, *ENGINE)),
    "quantised": Bench("quantised", ("worker/load", *CPU, *ENGINE)),
    "activations": Bench("activations", ("kernels/cpu",)),
    "serve": Bench("serve", (*CPU, *ENGINE, *ROUTER, *WIRE)),
    "serve-peer": Bench("serve_peer", (*CPU, *ENGINE, *ROUTER, *WIRE)),
    "speculation": Bench("speculation", ("worker/draft", *CPU, *ENGINE)),
    "constraints": Bench("constraints", ("common/grammar", "common/text/bridge", "worker/constrain", *CPU, *ENGINE)),
    "constrained": Bench("constrained", ("common/grammar", "common/text/bridge", "worker/constrain", *CPU, *ENGINE)),
    "adapters": Bench("adapters", ("worker/adapters", *CPU, *ENGINE)),
    "start": Bench("start", ("worker/load", "worker/main.cc", "worker/loaded_worker.cc", "cli/serve/serve.cc")),
    "first-minutes": Bench("first_minutes", ("cli/pull", "cli/serve", "cli/talk", "cli/batch", "library", "router/loading", *CPU, *ENGINE)),
    "sampling": Bench("sampling", ("kernels/sampling", "worker/sample")),
    "dialects": Bench("dialects", ("common/dialect",)),
    "agents": Bench("agents", ("router/responses", "router/messages", "router/chat", "common/dialect")),
    "collectives": Bench("collectives", ("kernels/collectives",)),
    "ranks": Bench("ranks", ("worker/ranks", "kernels/collectives", "kernels/cpu")),
    "scheduler": Bench("scheduler", ("worker/scheduler", "worker/kv", "worker/engine")),
    "batching": Bench("batching", (*CPU, *ENGINE)),
    "failover": Bench("failover", ("router/dispatch", "router/link", "router/fleet", *WIRE)),
    "routing": Bench("routing", ("router/routing", "router/fleet", "router/dispatch", "common/block_hash.cc")),
    "router-load": Bench("router_load", (*ROUTER, *WIRE)),
    "hostile": Bench("hostile", (*ROUTER, *WIRE)),
    "fairness": Bench("fairness", (*ROUTER, "common/runtime")),
    "metrics": Bench("metrics_scrape", ("common/metrics", "router/worker_metrics.cc")),
    "tracing": Bench("tracing", ("common/trace", "router/records", "worker/records")),
    "page": Bench("page_load", ("router/page", "router/http/page.cc")),
    "alert": Bench("alert", ("deploy/prometheus",)),
    "images": Bench("images", ("deploy/docker", "CMakeLists.txt", "cmake")),
    "relay": Bench("relay", ("router/link", "router/dispatch", "router/stream", "router/http")),
    "fleet": Bench("fleet", ("router/routing", "router/fleet", "router/dispatch")),
    "policies": Bench("policies", ("router/routing", "router/fleet", "router/dispatch")),
    "faults": Bench("faults", ("router/dispatch", "router/link", "router/fleet", *WIRE),
                    "./dev pytest tests/fault/faults_test.py --long --record"),
    "plane": Bench("plane", ("deploy/helm", "router/discovery"), "./dev pytest tests/plane/control_plane_test.py --record"),
    "random-answers": Bench("random_answers", ("common/grammar", "common/text/bridge", "worker/constrain"),
                            "./dev pytest tests/process/structured_random_test.py --long --record"),
    "maskbench": Bench("maskbench", ("common/grammar", "common/text/bridge"), "python3 bench/maskbench.py FOLDER"),
    "soak": Bench("soak", ("router", "worker"), "./dev pytest tests/process/soak_test.py --long --record"),
}
