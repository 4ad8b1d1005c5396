"""Traces and logs of a real router and its workers: taken by a collector of this test and read with OpenTelemetry's
published schema."""
import contextlib
import gzip
import http.server
import json
import os
import pathlib
import signal
import tempfile
import threading

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from harness import BIN, Process, Server, expect, metric_in, wait_until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
SECRET = "a-prompt-that-nobody-else-shall-read"


class Collector:
    """Takes OTLP over HTTP; `status` is what it answers with. `spans` are the router's."""

    def __init__(self, port=0):
        self.spans, self.resources, self.headers, self.raw, self.status = [], [], [], b"", 200
        self.of_workers = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Content-Encoding"] == "gzip":
                    body = gzip.decompress(body)
                outer.raw += body
                outer.headers.append((self.path, dict(self.headers)))
                if outer.status == 200:
                    message = ExportTraceServiceRequest()
                    message.ParseFromString(body)
                    for resource in message.resource_spans:
                        outer.resources.append(values(resource.resource.attributes))
                        program = outer.resources[-1]["process.executable.name"]
                        expect(program in ("quire-router", "quire-worker"), program)
                        to = outer.of_workers if program == "quire-worker" else outer.spans
                        for scope in resource.scope_spans:
                            to.extend(scope.spans)
                self.send_response(outer.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def named(self, name):
        return [s for s in self.spans if s.name == name]

    def worker_named(self, name):
        return [s for s in self.of_workers if s.name == name]


def values(attributes):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}


@contextlib.contextmanager
def collecting(**more):
    collector = Collector()
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}", "OTEL_BSP_SCHEDULE_DELAY": "50",
                 "OTEL_SERVICE_NAME": "our-router", "OTEL_EXPORTER_OTLP_HEADERS": "x-team=a%20b", **more}
    before = {k: os.environ.get(k) for k in variables}
    os.environ.update(variables)
    try:
        yield collector
    finally:
        collector.close()
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})


def ask(server, headers=(), stream=False, **body):
    connection = server.connection()
    connection.request("POST", "/v1/chat/completions", json.dumps({
        "model": "demo", "messages": [{"role": "user", "content": SECRET}], "max_tokens": 8, "stream": stream, **body}),
        {"Content-Type": "application/json", **dict(headers)})
    answer = connection.getresponse()
    answer.read()
    return answer


def test_a_request_is_a_trace_of_its_clients():
    with collecting() as collector, tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "requests.jsonl"
        with Server(f"--request-log={log}") as server:
            answer = ask(server, {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "one-request", "tracestate": STATE},
                         ignore_eos=True)
            wait_until(lambda: collector.named("decode"), "its spans arrive")
            (root,) = collector.named("chat demo")
            expect(answer.headers["traceresponse"] == f"00-{TRACE}-{root.span_id.hex()}-01", answer.headers)
            expect(root.trace_id.hex() == TRACE and root.parent_span_id.hex() == PARENT, root)
            by_id = {s.span_id: s for s in collector.spans}
            expect(all(s.trace_id == root.trace_id for s in collector.spans), "one trace")
            wait_until(lambda: collector.worker_named("decode"), "its worker's spans arrive")
            expect(all(s.trace_state == STATE for s in collector.spans + collector.of_workers), "its state goes along")
            expect({by_id[s.parent_span_id].name for s in collector.spans if s is not root} == {"chat demo", "attempt"},
                   [s.name for s in collector.spans])
            for span in collector.spans:
                expect(span.start_time_unix_nano <= span.end_time_unix_nano, span)
                parent = by_id.get(span.parent_span_id)
                expect(parent is None or parent.start_time_unix_nano <= span.start_time_unix_nano, span)
            found = values(root.attributes)
            expect(found["gen_ai.operation.name"] == "chat" and found["gen_ai.usage.output_tokens"] == 8, found)
            expect(found["gen_ai.usage.input_tokens"] > 10 and found["quire.request_id"] == "one-request", found)
            expect(collector.resources[0]["service.name"] == "our-router", collector.resources)
            path, headers = collector.headers[0]
            expect(path == "/v1/traces" and headers["Content-Type"] == "application/x-protobuf", (path, headers))
            expect(headers["x-team"] == "a b", headers)
            expect(SECRET.encode() not in collector.raw, "no text of a prompt")
            # Its client decided: not sampled, so nothing is told of it; one without a context begins a trace.
            count = len(collector.spans)
            ask(server, {"traceparent": f"00-{TRACE}-{PARENT}-00"})
            ask(server, {"tracestate": STATE})
            wait_until(lambda: len(collector.named("chat demo")) == 2, "the other one arrives")
            expect(all(s.trace_id.hex() != TRACE for s in collector.spans[count:]), "not the one that was not sampled")
            expect(not any(s.trace_state for s in collector.spans[count:]), "a state without a parent is none")
            expect(server.stop() == 0, server.process.output())
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        (attempt,) = [line for line in lines if line.get("attempt") and line["request_id"] == "one-request"]
        expect(attempt["trace_id"] == TRACE, attempt)
        lines = [line for line in lines if "attempts_total" in line]  # the worker writes there too
        expect(lines[0]["trace_id"] == TRACE and lines[2]["trace_id"] == collector.spans[-1].trace_id.hex(), lines)


def test_a_workers_spans_stand_below_its_routers_attempt():
    with collecting(OTEL_EXPORTER_OTLP_COMPRESSION="gzip") as collector, Server("--max-num-batched-tokens=16") as server:
        for count in (1, 2):
            ask(server, {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": f"r-{count}"}, ignore_eos=True)
            wait_until(lambda n=count: len(collector.worker_named("decode")) == n == len(collector.named("decode")),
                       "both parts arrive")
        expect(all(h["Content-Encoding"] == "gzip" for _, h in collector.headers), collector.headers)
        expect(all(s.trace_id.hex() == TRACE for s in collector.of_workers), "one trace")
        roots = collector.worker_named("text_completion demo")
        expect(sorted(s.parent_span_id for s in roots) == sorted(s.span_id for s in collector.named("attempt")),
               "each worker's span stands below its router's attempt")
        expect(all(s.kind == 2 for s in roots), "servers' spans")
        by_request = {values(s.attributes)["quire.request_id"]: s for s in roots}
        first, second = (values(by_request[f"r-{n}"].attributes) for n in (1, 2))
        expect(first["gen_ai.usage.output_tokens"] == 8 == second["gen_ai.usage.output_tokens"], (first, second))
        expect(first["gen_ai.usage.cache_read.input_tokens"] == 0, first)
        expect(second["gen_ai.usage.cache_read.input_tokens"] >= 16 and second["quire.preemptions"] == 0, second)
        by_id = {s.span_id: s for s in collector.of_workers}
        below = {name: {by_id[s.parent_span_id].name for s in collector.worker_named(name)}
                 for name in ("queue", "prefill", "decode", "prefill chunk")}
        expect(below == {"queue": {roots[0].name}, "prefill": {roots[0].name}, "decode": {roots[0].name},
                         "prefill chunk": {"prefill"}}, below)
        chunks = [s for s in collector.worker_named("prefill chunk")
                  if by_id[s.parent_span_id].parent_span_id == by_request["r-1"].span_id]
        computed = sum(values(s.attributes)["quire.chunk.tokens"] for s in chunks)
        expect(len(chunks) > 1 and computed == first["gen_ai.usage.input_tokens"], (len(chunks), computed, first))
        for span in collector.of_workers:
            parent = by_id.get(span.parent_span_id)
            expect(parent is None or parent.start_time_unix_nano <= span.start_time_unix_nano
                   <= span.end_time_unix_nano <= parent.end_time_unix_nano, (span, parent))
        expect(SECRET.encode() not in collector.raw, "no text of a prompt")


def test_vllms_flags_for_traces_are_taken():
    collector = Collector()
    variables = {"VLLM_ADDITIONAL_ARGS":
                 f"--otlp-traces-endpoint http://127.0.0.1:{collector.port} --collect-detailed-traces all",
                 "OTEL_BSP_SCHEDULE_DELAY": "50"}
    os.environ.update(variables)
    try:
        with Server() as server:
            ask(server)
            wait_until(lambda: collector.named("chat demo") and collector.worker_named("decode"), "both parts arrive")
            children = server.children("quire-router") + server.children("quire-worker")
            lines = [pathlib.Path(f"/proc/{pid}/cmdline").read_text() for pid in children]
            expect(len(lines) == 2 and not any(str(collector.port) in line for line in lines),
                   f"a URL may have a password in it, and stands on no command line: {lines}")
    finally:
        for name in variables:
            os.environ.pop(name)
        collector.close()


def test_lines_of_the_log_name_request_and_trace_and_no_text():
    with Server("--log-level=debug", "--log-format=json", "--workers=2") as server:
        answer = ask(server, {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "logged"}, nobody_knows_this=1)
        expect(answer.headers["traceresponse"].startswith(f"00-{TRACE}-") and
               answer.headers["traceresponse"].endswith("-00"), "nothing is recorded, and it says so")
        said = {"unknown fields of a request are ignored", "a request has ended", "an attempt has ended"}
        server.wait_until(lambda: {line["msg"] for line in about(server, "logged")} >= said, "router and worker log it")
        lines = about(server, "logged")
        expect({line["msg"] for line in lines} == said, lines)
        expect(all(line["trace_id"] == TRACE for line in lines), lines)
        events = server.stream("/v1/completions", {"model": "demo", "prompt": SECRET, "max_tokens": 1900,
                                                   "ignore_eos": True, "request_id": "moved"})
        next(events)
        kill_the_busy(server)
        expect(list(events)[-1] == "[DONE]", "the stream ends well")
        server.wait_until(lambda: any(line["msg"] == "an attempt did not end well" for line in about(server, "moved")),
                          "the loss is told")
        expect(server.stop() == 0, server.process.output())
        expect(SECRET not in server.process.output(), "no text of a prompt")


def about(server, request):
    """The lines of the log that name a request of that id."""
    lines = []
    for line in list(server.process.lines):
        start = line.find('{"ts"')  # behind the name of the child, if any
        with contextlib.suppress(ValueError):
            said = json.loads(line[start:]) if start >= 0 else {}
            if said.get("request_id") == request:
                lines.append(said)
    return lines


def kill_the_busy(server):
    busy = next(s["worker"] for s in json.loads(server.get("/fleet")[1])["streams"])
    for pid in server.children("quire-worker"):
        if f":{busy.rsplit(':', 1)[1]}" in listening(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_stream_that_was_carried_on_shows_both_attempts():
    with collecting() as collector, Server("--workers=2") as server:
        events = server.stream("/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 1900,
                                                   "ignore_eos": True})
        next(events)
        kill_the_busy(server)
        expect(list(events)[-1] == "[DONE]", "the stream ends well")
        wait_until(lambda: collector.named("text_completion demo"), "its spans arrive")
        (lost,), (carried,) = collector.named("attempt"), collector.named("carry_on")
        expect(values(lost.attributes)["error.type"] == "lost" and lost.status.code == 2, lost)
        expect(carried.status.code == 0 and len(collector.named("decode")) == 2, collector.spans)
        tokens = sum(values(s.attributes)["gen_ai.usage.output_tokens"] for s in (lost, carried))
        expect(tokens == 1900, tokens)
        expect([link.span_id for link in carried.links] == [lost.span_id] and not lost.links, carried)
        wait_until(lambda: collector.worker_named("text_completion demo"), "the worker's spans arrive")
        (resumed,) = collector.worker_named("text_completion demo")  # those of the other died with it
        expect(resumed.parent_span_id == carried.span_id, resumed)
        expect(values(resumed.attributes)["quire.tokens.resumed"] == values(lost.attributes)["gen_ai.usage.output_tokens"],
               (lost, resumed))


def listening(pid):
    """":PORT" of each port that the process listens on."""
    sockets = {os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                ports.add(f":{int(fields[1].rsplit(':', 1)[1], 16)}")
    return ports


def test_a_collector_that_is_away_costs_nothing_but_its_spans():
    with collecting() as collector, Server() as server:
        collector.status = 503
        for _ in range(3):
            expect(ask(server).status == 200, "it serves")
        wait_until(lambda: all(metric(server, f"quire_{who}_trace_export_failures_total") >= 1
                               for who in ("router", "worker")), "the failure is counted")
        collector.close()  # now nobody listens
        for _ in range(3):
            expect(ask(server).status == 200, "it serves")
        for who in ("router", "worker"):
            expect(metric(server, f"quire_{who}_trace_spans_dropped_total") > 0, "spans were dropped")
            expect(metric(server, f"quire_{who}_trace_spans_exported_total") == 0, "none was taken")
        expect(server.stop() == 0, server.process.output())
        told = [line for line in server.process.lines if "traces cannot be exported" in line]
        expect(len(told) == 2, told)  # once by the router, once by its worker


def metric(server, name):
    return metric_in(server.get("/metrics")[1], name) or 0


def test_without_an_endpoint_or_switched_off_nothing_is_sent():
    with collecting(OTEL_TRACES_EXPORTER="none") as collector, Server() as server:
        expect(ask(server).status == 200 and server.stop() == 0, "it serves")
        expect(not collector.headers, "nothing came")


def test_what_is_wrong_is_told_and_does_not_keep_it_from_serving():
    with collecting(OTEL_EXPORTER_OTLP_PROTOCOL="grpc", OTEL_BSP_MAX_QUEUE_SIZE="many") as collector:
        with Process([BIN / "quire-worker", "--model=/nowhere", "--listen=127.0.0.1:0"]) as worker:
            worker.wait_for_line("OTEL_EXPORTER_OTLP_PROTOCOL")
            worker.wait_for_line("OTEL_BSP_MAX_QUEUE_SIZE")
        with Process([BIN / "quire-router", "--worker=127.0.0.1:1", "--port=0", "--grpc-port=0"]) as router:
            router.wait_for_line("OTEL_EXPORTER_OTLP_PROTOCOL")
            router.wait_for_line("OTEL_BSP_MAX_QUEUE_SIZE")
            router.wait_for_line("listening")
            router.signal(signal.SIGTERM)
            expect(router.wait() == 0, router.output())
        expect(not collector.headers, "nothing came")
    with Process([BIN / "quire-router", "--worker=127.0.0.1:1", "--port=0", "--grpc-port=0",
                  "--otlp-traces-endpoint=collector:4317"]) as router:
        router.wait_for_line("port 4317 is gRPC's by custom")
        router.wait_for_line("listening")
        router.signal(signal.SIGTERM)
        expect(router.wait() == 0, router.output())
