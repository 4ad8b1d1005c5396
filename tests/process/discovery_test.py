"""Real routers that find real workers: by a file, and by Kubernetes as a real API server spoke."""
import contextlib
import pathlib
import re
import signal
import tempfile
import threading

from harness import BIN, DEMO, Process, RouterUnderTest, expect
from kubernetes_api import ReplayingApi, recorded


@contextlib.contextmanager
def a_worker():
    with Process([BIN / "quire-worker", "--model", DEMO, "--listen=127.0.0.1:0", "--http-port=0",
                  "--threads=1"]) as worker:
        line = worker.wait_for_line("ready:")
        yield worker, int(re.search(r"127\.0\.0\.1:(\d+)", line).group(1))


def serves(router):
    status, answer = router.post("/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 4})
    return status == 200 and answer["usage"]["completion_tokens"] == 4


def test_a_list_file_is_followed_and_a_broken_one_changes_nothing():
    with tempfile.TemporaryDirectory() as folder, a_worker() as (first, one), a_worker() as (_, two):
        path = pathlib.Path(folder) / "workers"
        path.write_text(f"127.0.0.1:{one}  # the first\n")
        with RouterUnderTest("--worker-file", path) as router:
            router.wait_until(lambda: serves(router), "it serves by the first worker")
            path.write_text("rubbish\n")
            router.process.wait_for_line("line 1: must be HOST:PORT")
            expect(serves(router), "the last list holds")
            path.write_text(f"127.0.0.1:{two}\n")
            router.wait_until(lambda: router.metric('quire_router_workers{phase="ready"}') == 2, "both are there")
            first.signal(signal.SIGKILL)
            router.wait_until(lambda: router.metric('quire_router_workers{phase="ready"}') == 1 and
                              router.metric('quire_router_workers{phase="connecting"}') == 0, "the first is gone")
            expect(serves(router), "by the second worker")
            expect(router.stop() == 0, router.process.output())


def test_every_address_of_a_name_is_a_worker():
    with a_worker() as (_, port):
        with RouterUnderTest(f"--worker-dns=localhost:{port}") as router:
            router.wait_until(lambda: serves(router), "it serves by the address that a worker listens on")
            expect(router.stop() == 0, router.process.output())
    with RouterUnderTest("--worker-dns=nobody.invalid:9000") as router:
        router.process.wait_for_line("nobody.invalid cannot be resolved")
        expect(router.stop() == 0, router.process.output())


def test_kubernetes_is_followed_through_all_that_an_api_server_does():
    with tempfile.TemporaryDirectory() as name, a_worker() as (_, port):
        folder = pathlib.Path(name)
        api = ReplayingApi(folder, {"10.1.0.1": ("127.0.0.1", port)})
        (folder / "token").write_text("first-token\n")
        (folder / "namespace").write_text("prod\n")
        api.plan = lambda query: (403, [recorded("forbidden.json").encode()])
        go_on, dropped = threading.Event(), threading.Event()
        watch = recorded("watch.txt").encode()
        added, rest = watch.split(b"\n", 1)[0] + b"\n", watch.split(b"\n", 1)[1]
        modified = rest.split(b"\n", 1)[0] + b"\n"

        def plan(query):
            if "watch" not in query:
                name = "page2.json" if "continue" in query else "page1.json" if dropped.is_set() else "list.json"
                return 200, [api.moved(recorded(name)).encode()]
            if query["resourceVersion"] == "299":  # from the list: cut off in the middle of an event
                return 200, [api.moved(added.decode()).encode(), go_on, modified[:100], None]
            if not dropped.is_set():  # goes on behind the first event; then the server forgets
                return 200, [api.moved(rest.decode()).encode()[i:i + 7] for i in range(0, len(rest), 7)] + [
                    dropped, recorded("expired.txt").encode()]
            return 200, [threading.Event()]

        found = 'quire_router_discovered_workers{source="worker-k8s"}'
        with RouterUnderTest("--worker-k8s=quire-workers", "--k8s-service-account", folder,
                             f"--k8s-api-server=https://127.0.0.1:{api.port}") as router:
            try:
                router.process.wait_for_line("needs list and watch on endpointslices")
                api.plan = plan
                router.wait_until(lambda: serves(router), "it serves by the worker of the list")
                expect(api.queries[0][0] == "/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices", api.queries)
                router.wait_until(lambda: router.metric(found) == 2, "the watch's first event")
                go_on.set()
                router.wait_until(lambda: router.metric(found) == 1, "the watch goes on after it was cut")
                expect(api.queries[-1][1].get("resourceVersion") not in (None, "299"), api.queries[-1])
                before = len(api.queries)
                dropped.set()
                router.wait_until(lambda: any("watch" not in q for _, q in api.queries[before:]), "it lists again")
                router.wait_until(lambda: router.metric(found) == 2, "the workers of both pages")
                # The token is replaced while nobody asks; the next question brings the new one.
                api.token = "second-token"
                (folder / "token").write_text("second-token\n")
                api.close()
                router.process.wait_for_line("the last list holds")
                expect(serves(router), "without an API server")
                expect(router.metric(found) == 2, "the list holds")
                expect(router.stop() == 0, router.process.output())
            finally:
                api.closing.set()


def test_a_token_that_was_replaced_is_read_again():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        api = ReplayingApi(folder, {})
        api.token = "new-token"
        (folder / "token").write_text("old-token")
        (folder / "namespace").write_text("prod")
        with RouterUnderTest("--worker-k8s=quire-workers", "--k8s-service-account", folder, "--host=127.0.0.1",
                             f"--k8s-api-server=https://127.0.0.1:{api.port}") as router:
            router.process.wait_for_line("the token of the service account is refused")
            (folder / "token").write_text("new-token")
            router.process.wait_for_line("--worker-k8s works again")
            (folder / "token").write_text("")  # a foreign authority would be refused as well:
            expect(router.stop() == 0, router.process.output())
        api.close()


def test_a_server_of_another_authority_is_not_trusted():
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as other:
        folder = pathlib.Path(name)
        api = ReplayingApi(pathlib.Path(other), {})
        strange = ReplayingApi(folder, {})  # leaves another authority in the service account's place
        (folder / "token").write_text("first-token")
        with RouterUnderTest("--worker-k8s=quire-workers", "--k8s-service-account", folder,
                             "--worker-k8s-namespace=prod", f"--k8s-api-server=https://127.0.0.1:{api.port}") as router:
            router.process.wait_for_line("TLS handshake")
            expect(not api.queries, "no token went to a stranger")
            expect(router.stop() == 0, router.process.output())
        api.close()
        strange.close()


def test_bad_flags_are_refused_in_one_line():
    for args, text in [
        (["--worker-file=/nonexistent"], "--worker-file: "),
        (["--worker-dns=name"], "--worker-dns: must be HOST:PORT"),
        (["--worker-k8s=a", "--k8s-api-server=kubernetes"], "--k8s-api-server: must be a URL"),
        (["--worker-k8s=a", "--k8s-service-account=/nonexistent"], "--worker-k8s-namespace is missing"),
        ([], "--worker is missing"),
    ]:
        with Process([BIN / "quire-router", "--port=0", "--grpc-port=0", *args]) as router:
            code = router.wait()
            expect(code in (1, 2) and len(router.lines) == 1 and text in router.lines[0], f"{args} {code} {router.lines}")
