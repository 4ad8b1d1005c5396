"""The suites that are not tests of CTest: their tiers, declared minutes, and what runs them."""
import dataclasses
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".cache" / "venv-tests" / "bin" / "python"  # ./dev puts pytest there
LONG, NORMAL, QUICK = "long", "normal", "quick"


@dataclasses.dataclass
class Suite:
    name: str
    tiers: tuple
    minutes: float
    command: list  # the file to run first; `pytest` stands for the pinned one
    alone: bool = False  # runs first, while no other suite does: it computes on all cores, or watches the time
    env: dict = dataclasses.field(default_factory=dict)
    own_build: bool = False  # needs nothing of build/

    def file(self):
        """The file of the tree that the suite is."""
        return ROOT / next(word for word in self.command if "/" in word)


def bash(name, tiers, minutes, *words, **more):
    return Suite(name, tiers, minutes, ["bash", *words], **more)


def tests(name, tiers, minutes, *words, **more):
    return Suite(name, tiers, minutes, ["pytest", *words], **more)


BOTH, ALL = (NORMAL, LONG), (QUICK, NORMAL, LONG)
# What takes processes down while they are in use, and bad input: once more under AddressSanitizer.
FAULTS = ("test_a_killed_worker_never_ends_a_stream_silently_and_comes_back",
          "test_interrupt_drains_and_a_second_one_ends_at_once", "test_a_client_that_leaves_frees_the_worker",
          "test_bad_requests_name_what_is_wrong_and_hurt_nobody", "test_broken_model_files_are_refused_by_name",
          "test_a_taken_port_is_named")
SANITIZED = {"QUIRE_TEST_BUILD": "build-asan"}
STORM = "test_clients_that_leave_free_everything_and_change_nothing_for_others"

SUITES = [
    tests("tidy", ALL, 0.2, "tests/tidy", own_build=True),
    tests("fetch", BOTH, 0.3, "tests/models", own_build=True),
    tests("results", ALL, 0.1, "tests/bench/results_test.py", own_build=True),
    tests("deploy", BOTH, 0.5, "tests/deploy/static_test.py"),
    tests("chart", BOTH, 0.3, "tests/deploy/helm_test.py"),
    bash("bridge", BOTH, 1.0, "tests/common/text/bridge.sh"),
    tests("constraints", BOTH, 0.3, "tests/common/grammar/constraints_test.py"),
    tests("conformance", BOTH, 1.3, "tests/conformance/conformance_test.py", "tests/conformance/agents_test.py",
          "tests/conformance/grpc_interop_test.py"),
    tests("coding-agents", (LONG,), 1.0, "tests/conformance/coding_agents_test.py"),
    tests("load-tool", (LONG,), 1.5, "tests/conformance/load_tool_test.py"),
    tests("process", BOTH, 1.0, "tests/process/serve_test.py"),
    tests("models", BOTH, 0.5, "tests/process/models_test.py"),
    tests("commands", BOTH, 0.8, "tests/process/commands_test.py", "tests/process/chat_test.py"),
    tests("batch", BOTH, 0.5, "tests/process/batch_test.py"),
    tests("http-batches", BOTH, 0.5, "tests/process/http_batches_test.py"),
    tests("library", BOTH, 0.9, "tests/library"),
    tests("quantise", BOTH, 0.4, "tests/process/quantise_test.py"),
    tests("supply", BOTH, 1.4, "tests/supply"),
    tests("packages", BOTH, 1.0, "tests/package"),
    tests("traces", BOTH, 0.4, "tests/traces"),
    tests("page", BOTH, 0.5, "tests/page"),
    tests("edge", BOTH, 0.4, "tests/process/edge_test.py"),
    tests("structured", BOTH, 1.5, "tests/process/structured_test.py", "tests/process/structured_random_test.py"),
    tests("proxies", BOTH, 0.2, "tests/process/proxies_test.py"),
    tests("attack", BOTH, 2.0, "tests/attack", alone=True),
    tests("discovery", BOTH, 0.5, "tests/process/discovery_test.py"),
    tests("docs", BOTH, 0.6, "tests/docs"),
    tests("resumes", BOTH, 0.2, "tests/fault/resumes_test.py"),
    tests("speculation", BOTH, 0.4, "tests/fault/speculation_test.py", "tests/process/prediction_test.py"),
    tests("adapters", BOTH, 1.0, "tests/fault/adapters_test.py", "tests/process/lora_test.py",
          "tests/process/lora_runtime_test.py", "tests/process/lora_ranks_test.py"),
    tests("hangs", BOTH, 0.4, "tests/fault/hangs_test.py", alone=True),
    tests("ranks", BOTH, 1.2, "tests/fault/ranks_test.py"),
    tests("plane", BOTH, 1.0, "tests/plane/agent_test.py"),
    tests("faults", (NORMAL,), 2.5, "tests/fault/faults_test.py"),
    tests("faults", (LONG,), 12.0, "tests/fault/faults_test.py", "--long", "--record", alone=True),
    tests("soak", (NORMAL,), 0.3, "tests/process/soak_test.py"),
    tests("soak", (LONG,), 10.5, "tests/process/soak_test.py", "--long", "--record", alone=True),
    tests("emulated", (NORMAL,), 0.6, "tests/process/emulated_test.py"),
    tests("emulated", (LONG,), 2.0, "tests/process/emulated_test.py", "--long"),
    tests("streams", (NORMAL,), 0.5, "tests/process/streams_test.py", alone=True),
    tests("streams", (LONG,), 4.5, "tests/process/streams_test.py", "--long", alone=True),
    tests("monitoring", BOTH, 0.9, "tests/monitoring", alone=True),
    tests("sanitized-process", BOTH, 1.0, "tests/process/serve_test.py", "-k", " or ".join(FAULTS), env=SANITIZED),
    tests("sanitized-faults", BOTH, 1.0, "tests/fault/faults_test.py", "-k", STORM, env=SANITIZED),
    tests("instruction-sets", BOTH, 0.1, "tests/kernels/isa_test.py"),
    tests("cuda-gate", (NORMAL,), 2.0, "tests/kernels/cuda/gate_test.py", alone=True, own_build=True),
    tests("cuda-gate", (LONG,), 3.5, "tests/kernels/cuda/gate_test.py", "--long", alone=True, own_build=True),
    tests("cuda-plugin", (NORMAL,), 1.0, "tests/kernels/cuda/plugin_test.py", alone=True),
    tests("cuda-plugin", (LONG,), 9.0, "tests/kernels/cuda/plugin_test.py", "--long", alone=True),
    tests("gpu", (NORMAL,), 1.0, "tests/bench/gpu_test.py", alone=True),
    tests("gpu", (LONG,), 2.5, "tests/bench/gpu_test.py", "--long", alone=True),
    tests("deployed", BOTH, 1.3, "tests/deploy/live_test.py"),  # after the plugin, which one of its images holds
    tests("rank-kills", (LONG,), 4.0, "tests/fault/rank_kills_test.py", alone=True),
    tests("sanitized-storm", (LONG,), 4.0, "tests/fault/faults_test.py", "--long", "-k", STORM, alone=True, env=SANITIZED),
    tests("kubernetes", (LONG,), 4.0, "tests/kubernetes/follow_test.py", alone=True),
    tests("control-plane", (LONG,), 5.0, "tests/plane/control_plane_test.py", "--record", alone=True),
    tests("chart-on-cluster", (LONG,), 1.0, "tests/kubernetes/chart_test.py", alone=True),
    tests("fuzz", (LONG,), 35.0, "tests/fuzz", "--long", alone=True, own_build=True),
    bash("lint", (LONG,), 50.0, "./dev", "lint", alone=True, own_build=True),
]
