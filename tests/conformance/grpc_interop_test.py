"""gRPC's own interoperability tests (doc/interop-test-descriptions.md of grpc/grpc), both ways, in the clear and through TLS:
grpc-go's client against a TestService on common/grpc, and the router's caller against grpc-go's server.

Not applicable are the cases that need a cloud's credentials. Of gRPC's descriptions
grpc-go's client holds no cacheable_unary, nor those of compression: a client's compressed messages come from Python's grpcio
here. server_compressed_unary and server_compressed_streaming are for servers that compress, and common/grpc does not, as
gRPC's doc/compression.md allows: "A gRPC peer MAY choose to respond using a different compression method to that of the
request, including not performing any compression, regardless of channel and RPC settings".

The router's caller has one call on each connection, sends no metadata and tells its user of none: it cannot express
custom_metadata, rpc_soak, pick_first_unary and the load reports of orca_per_rpc and orca_oob.
"""
import contextlib
import json
import re
import subprocess

import pytest

from edge_test import Authority
from harness import BIN, ROOT, Process, expect, free_port

GO_BIN = ROOT / ".cache" / "go-bin"
HERE = ROOT / "tests" / "conformance"
LIMIT_S = 60
SERVER_NAME = "interop.test"
pytestmark = pytest.mark.usefixtures("clients")

LOAD_REPORTS = json.dumps({"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]})
SOAK = ("--soak_iterations=10", "--soak_overall_timeout_seconds=40", "--soak_per_iteration_max_acceptable_latency_ms=10000")
GO_CASES = {  # case → further flags
    "empty_unary": (),
    "large_unary": (),
    "client_streaming": (),
    "server_streaming": (),
    "ping_pong": (),
    "empty_stream": (),
    "timeout_on_sleeping_server": (),
    "cancel_after_begin": (),
    "cancel_after_first_response": (),
    "status_code_and_message": (),
    "special_status_message": (),
    "custom_metadata": (),
    "unimplemented_method": (),
    "unimplemented_service": (),
    "pick_first_unary": (),
    "rpc_soak": SOAK,
    "channel_soak": SOAK,
    "orca_per_rpc": (f"--service_config_json={LOAD_REPORTS}",),
    "orca_oob": (f"--service_config_json={LOAD_REPORTS}",),
}
NEED_A_CLOUD = {"compute_engine_creds", "service_account_creds", "jwt_token_creds", "per_rpc_creds", "oauth2_auth_token",
                "google_default_credentials", "compute_engine_channel_credentials"}
OUR_CASES = ("empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
             "timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response", "status_code_and_message",
             "special_status_message", "unimplemented_method", "unimplemented_service", "channel_soak")


class Pair:
    """A certificate that both sides show, and who vouches for it."""

    def __init__(self, folder):
        authority = Authority(folder, "authority")
        self.authority, self.certificate, self.key = authority.file, folder / "both.pem", folder / "both.key"
        authority.issue(self.certificate, self.key, SERVER_NAME)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return Pair(tmp_path_factory.mktemp("interop"))


@pytest.fixture(scope="module", params=("clear", "tls"))
def tls(request):
    """Whether connections go through TLS."""
    return request.param == "tls"


@pytest.fixture(scope="module")
def our_server(tls, pair):
    flags = (f"--tls-cert-file={pair.certificate}", f"--tls-key-file={pair.key}") if tls else ()
    with Process([BIN / "grpc_interop_server", *flags]) as process:
        yield json.loads(process.wait_for_line('"grpc"'))["grpc"]
        process.signal(15)
        expect(process.wait() == 0, process.output())


@pytest.fixture(scope="module")
def go_server(clients, tls, pair):
    flags = ("--use_tls", f"--tls_cert_file={pair.certificate}", f"--tls_key_file={pair.key}") if tls else ()
    port = free_port()
    with Process([GO_BIN / "grpc-interop-server", f"--port={port}", *flags],
                 env={"GRPC_GO_LOG_SEVERITY_LEVEL": "info"}) as process:
        process.wait_for_line("interop server listening on")
        yield f"127.0.0.1:{port}"


def passes(command):
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=LIMIT_S)
        return expect(done.returncode == 0, f"{done.returncode}: {done.stdout[-3000:]}")
    pytest.fail(f"did not end within {LIMIT_S} s: {command}")


@pytest.mark.parametrize("case", GO_CASES)
def test_grpc_go_passes_against_our_server(case, our_server, tls, pair):
    host, port = our_server.split(":")
    flags = ("--use_tls", "--use_test_ca", f"--ca_file={pair.authority}", f"--server_host_override={SERVER_NAME}") if tls else ()
    passes([GO_BIN / "grpc-interop-client", f"--server_host={host}", f"--server_port={port}", f"--test_case={case}", *flags,
            *GO_CASES[case]])


def test_every_case_of_grpc_go_is_run_but_those_that_need_a_cloud():
    told = subprocess.run([GO_BIN / "grpc-interop-client", "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT_S).stdout
    options = told.split("Configure different test cases. Valid options are:")[1].split("-use_alts")[0]
    named = set(re.findall(r"^\s+(\w+) ?: ", options, re.M)) | {"rpc_soak", "channel_soak"}  # which it takes and does not name
    expect(named == set(GO_CASES) | NEED_A_CLOUD, sorted(named ^ (set(GO_CASES) | NEED_A_CLOUD)))


@pytest.mark.parametrize("case", ("client_compressed_unary", "client_compressed_streaming"))
def test_grpcio_compresses_what_our_server_reads(case, our_server, tls, pair):
    flags = (pair.authority, SERVER_NAME) if tls else ()
    passes([ROOT / ".cache" / "venv-kserve" / "bin" / "python", HERE / "grpc_compressed_client.py", our_server, case, *flags])


@pytest.mark.parametrize("case", OUR_CASES)
def test_our_caller_passes_against_grpc_go(case, go_server, tls, pair):
    flags = (f"--tls-ca-file={pair.authority}", f"--tls-cert-file={pair.certificate}", f"--tls-key-file={pair.key}",
             f"--tls-name={SERVER_NAME}") if tls else ()
    passes([BIN / "grpc_interop_caller", f"--server={go_server}", f"--case={case}", *flags])


def test_our_caller_has_no_other_cases():
    listed = subprocess.run([BIN / "grpc_interop_caller", "--case=list"], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S)
    expect(sorted(listed.stdout.split()) == sorted(OUR_CASES), listed.stdout)
