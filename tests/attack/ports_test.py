"""Attacks on the router's ports without any credentials. Each succeeded once: a limit held, and a product of limits,
the work for a byte, or what was held and not counted did not."""
import contextlib
import http.client
import json
import pathlib
import socket
import subprocess
import tempfile

import raw_http2 as http2
import raw_tls as tls
from raw_http2 import DATA, END_HEADERS, END_STREAM, HEADERS, WINDOW_UPDATE, field, frame
from target import BIN, MIB, Process, Target, certificates

WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
CHAT = "/quire.v1.Inference/Chat"


def test_references_to_a_long_header_cost_no_more_than_their_bytes():
    """16 KiB of one-byte references to a header of 4,000 bytes decode to 64 MB, in every frame again."""
    frames, size = 128, 16 << 10
    with Target() as target:
        def cost(block):
            before = target.router.seconds()
            with http2.Connection(target.grpc_port) as connection:
                connection.send(frame(HEADERS, END_HEADERS, 1, http2.request("/x", a="b") + http2.literal("a", "v" * 4000, True)))
                for number in range(frames):
                    if not connection.send(frame(HEADERS, END_HEADERS | END_STREAM, 3 + 2 * number, block)):
                        break
                connection.send(frame(http2.PING, 0, 0, b"12345678"))
                connection.frames(lambda kind, *_: kind == http2.PING)
            return target.router.seconds() - before
        head = http2.request("/x")
        honest = cost(head + b"".join(http2.literal(f"h{i}", "v" * 100) for i in range(20)))
        hostile = cost(head + bytes((http2.FIRST_DYNAMIC,)) * (size - len(head)))
        print(f"processor seconds: {hostile:.2f}, honest headers {honest:.2f}")
        assert hostile <= 10 * honest + 0.5
        target.still_serves()


def test_headers_of_calls_that_wait_are_counted():
    """Health watchers of no credentials, each of which holds 60 KB of headers for 16 bytes that it sent."""
    connections = []
    with Target() as target, contextlib.ExitStack() as stack:
        with target.router.growth(64 * MIB, "held headers"):
            for _ in range(16):
                connection = stack.enter_context(http2.Connection(target.grpc_port))
                connections.append(connection)
                long = http2.literal("a", "v" * 4000, True)
                for number in range(200):
                    block = http2.request(WATCH) + (long if number == 0 else bytes((http2.FIRST_DYNAMIC,)) * 15)
                    if not connection.send(frame(HEADERS, END_HEADERS, 1 + 2 * number, block) +
                                           frame(DATA, END_STREAM, 1 + 2 * number, http2.message())):
                        break
                connection.send(frame(http2.PING, 0, 0, b"12345678"))
                connection.frames(lambda kind, flags, *_: kind == http2.PING and flags & 1, limit_s=10)
        target.still_serves()


def test_small_headers_of_calls_that_wait_are_counted():
    """Reflection keeps no headers: 1,700 of two bytes, each a byte on the wire, must leave nothing behind."""
    with Target() as target, contextlib.ExitStack() as stack:
        with target.router.growth(48 * MIB, "small headers"):
            for _ in range(16):
                connection = stack.enter_context(http2.Connection(target.grpc_port))
                for number in range(100):
                    small = http2.literal("a", "b", True) if number == 0 else bytes((http2.FIRST_DYNAMIC,)) * 1700
                    if not connection.send(frame(HEADERS, END_HEADERS, 1 + 2 * number, http2.request(REFLECTION) + small)):
                        break
                connection.send(frame(http2.PING, 0, 0, b"12345678"))
                connection.frames(lambda kind, flags, *_: kind == http2.PING and flags & 1, limit_s=10)
                assert not connection.closed
        target.still_serves()


def test_one_address_does_not_take_every_place():
    with Target("--max-connections=64") as target, contextlib.ExitStack() as stack:
        watch = frame(HEADERS, END_HEADERS, 1, http2.request(WATCH)) + frame(DATA, END_STREAM, 1, http2.message())
        for _ in range(80):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(http2.Connection(target.grpc_port, source="127.0.0.2"))
                connection.send(watch)
                connection.frames(lambda kind, *_: kind == DATA)  # the first answer, or the end
        for _ in range(5):
            assert target.serves() == 200


def test_an_answer_that_is_not_taken_is_held_once_for_all_who_ask_for_it():
    with Target() as target, contextlib.ExitStack() as stack:
        size = len(target.get("/metrics")[1])
        count = 500
        with target.router.growth(count * size // 2, f"{count} readers of a text of {size} bytes"):
            for _ in range(count):
                connection = stack.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect(("127.0.0.1", target.port))
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
            target.still_serves()


def test_metrics_name_no_tenants_to_strangers():
    with tempfile.TemporaryDirectory() as folder:
        keys, salt = pathlib.Path(folder) / "keys.json", pathlib.Path(folder) / "salt"
        keys.write_text(json.dumps({"keys": [{"sha256": "0" * 64, "tenant": "secretive"}]}))
        salt.write_text("0" * 64)
        with Process([BIN / "quire-router", "--host=0.0.0.0", "--worker=127.0.0.1:9", "--port=0", "--grpc-port=0", "--log-format=json",
                      f"--api-key-file={keys}", f"--salt-key-file={salt}"]) as process:
            line = json.loads(process.wait_for_line('"listening"'))
            connection = http.client.HTTPConnection("127.0.0.1", int(line["http"].rsplit(":", 1)[1]), timeout=30)
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            assert answer.status in (401, 403, 404), answer.read()[:200]


def test_key_updates_do_not_hold_the_event_loop():
    updates = 20_000
    with tempfile.TemporaryDirectory() as folder:
        made = certificates(folder)
        with Process([BIN / "quire-router", "--worker=127.0.0.1:9", "--port=0", "--grpc-port=0", "--log-format=json",
                      f"--tls-cert-file={made}/server.pem", f"--tls-key-file={made}/server.key"]) as process:
            port = json.loads(process.wait_for_line('"listening"'))["http"].rsplit(":", 1)[1]
            for kind in (tls.UPDATE_NOT_REQUESTED, tls.UPDATE_REQUESTED):
                connection = tls.Connection(int(port))
                sent = 0
                while sent < updates and connection.update_key(kind):
                    sent += 1
                connection.close()
                assert sent < updates, f"the connection went on through {sent} KeyUpdates"


def test_a_page_of_another_site_reaches_nothing_on_ones_own_machine():
    body = json.dumps({"model": "demo", "prompt": "a", "max_tokens": 1})
    with Target() as target:
        def status(method, path, headers, sent=None):
            connection = target.connection()
            connection.putrequest(method, path, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name, value)
            if sent is not None:
                connection.putheader("Content-Length", str(len(sent)))
            connection.endheaders(sent.encode() if sent is not None else None)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        own = f"http://127.0.0.1:{target.port}"
        for path in ("/v1/models", "/fleet", "/metrics"):
            assert status("GET", path, {"Host": "evil.example"}) in (403, 421), path
            assert status("GET", path, {"Host": f"localhost:{target.port}"}) == 200, path
        post = ("POST", "/v1/completions")
        assert status(*post, {"Content-Type": "application/json", "Origin": "https://evil.example"}, body) == 403
        assert status(*post, {"Content-Type": "application/json", "Origin": own}, body) == 200
        assert status(*post, {"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"}, body) == 403
        assert status(*post, {"Content-Type": "text/plain"}, body) == 415
        assert status(*post, {"Content-Type": "application/x-www-form-urlencoded", "Origin": own}, body) in (403, 415)
        assert status(*post, {"Content-Type": "application/x-www-form-urlencoded"}, body) == 200  # curl -d


def test_silent_connections_do_not_starve_probes():
    with Target() as target, contextlib.ExitStack() as stack:
        worker = target.children("quire-worker")[0]
        from_kernel = subprocess.run(["ss", "-ltnp"], capture_output=True, text=True).stdout
        ports = [int(line.split()[3].rsplit(":", 1)[1]) for line in from_kernel.splitlines() if f"pid={worker}," in line]
        def probes(port):
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                connection.request("GET", "/livez")
                return connection.getresponse().status == 200
            return False
        port = next(port for port in ports if probes(port))
        for _ in range(80):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert all(probes(port) for _ in range(10))


def test_resets_that_the_server_is_made_to_send_are_counted():
    with Target() as target, http2.Connection(target.grpc_port) as connection:
        for number in range(5000):
            stream = 1 + 2 * number
            if not connection.send(frame(HEADERS, END_HEADERS, stream, http2.request(WATCH)) +
                                   frame(WINDOW_UPDATE, 0, stream, b"\0\0\0\0")):
                break
            if number % 100 == 99:
                connection.frames(lambda *_: True, limit_s=1)
                if connection.closed:
                    break
        assert connection.closed or number < 4999
        target.still_serves()


def test_a_call_with_a_long_error_ends():
    role = b"x" * 70_000
    chat = field(1, b"demo") + field(2, field(1, role) + field(2, b"a"))
    with Target() as target, http2.Connection(target.grpc_port) as connection:
        connection.send(frame(HEADERS, END_HEADERS, 1, http2.request(CHAT)))
        payload = http2.message(chat)
        for begin in range(0, len(payload), 16_000):
            last = begin + 16_000 >= len(payload)
            connection.send(frame(DATA, END_STREAM if last else 0, 1, payload[begin:begin + 16_000]))
        assert connection.ends(1, limit_s=10), "the call never ends"


def test_what_reflection_echoes_is_counted():
    with Target() as target, contextlib.ExitStack() as stack:
        window_of_nothing = b"\0\4\0\0\0\0"
        with target.router.growth(128 * MIB, "echoes of reflection"):
            for _ in range(2):
                connection = stack.enter_context(http2.Connection(target.grpc_port, settings=window_of_nothing))
                name = field(3, b"x" * (14 << 20))
                payload = http2.message(name)
                for call in range(8):
                    stream = 1 + 2 * call
                    connection.send(frame(HEADERS, END_HEADERS, stream, http2.request(REFLECTION)))
                    send_with_window(connection, stream, payload)
        target.still_serves()


def send_with_window(connection, stream, payload):
    """Sends DATA as the server's windows allow."""
    credit = connection.credit
    credit[stream] = connection.first_credit
    sent = 0
    while sent < len(payload):
        room = min(16_384, credit[0], credit[stream], len(payload) - sent)
        if room <= 0:
            found = connection.frames(lambda kind, *_: kind in (WINDOW_UPDATE, http2.SETTINGS, http2.RST_STREAM), limit_s=3)
            for kind, _, number, data in found:
                if kind == http2.RST_STREAM and number == stream:
                    return
                if kind == WINDOW_UPDATE and number in credit:
                    credit[number] += int.from_bytes(data, "big")
                if kind == http2.SETTINGS and data:
                    for at in range(0, len(data), 6):
                        if data[at:at + 2] == b"\0\4":
                            connection.first_credit = int.from_bytes(data[at + 2:at + 6], "big")
                            credit[stream] += connection.first_credit - 65_535
            if not found or connection.closed:
                return
            continue
        if not connection.send(frame(DATA, 0, stream, payload[sent:sent + room])):
            return
        sent += room
        for key in (0, stream):
            credit[key] -= room
