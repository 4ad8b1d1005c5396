"""The edge of real processes: keys, TLS on both sides, the admin port, and a census of the ports that listen."""
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import resource
import ssl
import subprocess
import tempfile

from harness import BIN, DEMO, Process, expect, listening_ports, run, wait_until

PROMPT = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}


class Running(Process):
    """A program started on ports of the system's choice, with what its line for supervisors says."""

    def __init__(self, program, *args):
        self.read_end, self.write_end = os.pipe()
        os.set_inheritable(self.write_end, True)
        super().__init__([BIN / program, f"--ready-fd={self.write_end}", *args],
                         pass_fds=(self.write_end,))
        os.close(self.write_end)

    def ready(self):
        with os.fdopen(self.read_end) as pipe:
            line = pipe.readline()
        expect(line, f"it ended before it was ready: {self.output()}")
        return json.loads(line)


def worker(*args):
    return Running("quire-worker", "--model", DEMO, "--listen=127.0.0.1:0", "--http-port=0", "--threads=1", *args)


def router(worker_address, *args):
    return Running("quire-router", f"--worker={worker_address}", "--port=0", "--grpc-port=0", *args)


def port_of(address):
    return int(address.rsplit(":", 1)[1])


def ask(port, method, path, body=None, key=None, context=None, headers=()):
    connection = (http.client.HTTPSConnection("localhost", port, timeout=60, context=context) if context
                  else http.client.HTTPConnection("127.0.0.1", port, timeout=60))
    sent = dict(headers)
    if key:
        sent["Authorization"] = f"Bearer {key}"
    connection.request(method, path, json.dumps(body) if body is not None else None, sent)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    with contextlib.suppress(ValueError):
        return answer.status, json.loads(text)
    return answer.status, text


def key_entry(key, tenant, **members):
    return {"sha256": hashlib.sha256(key.encode()).hexdigest(), "tenant": tenant, **members}


def replace(path, text):
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def openssl(*args, **kwargs):
    subprocess.run(["openssl", *[str(a) for a in args]], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, **kwargs)


class Authority:
    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", self.file)

    @property
    def file(self):
        return self.folder / f"{self.name}.pem"

    def issue(self, certificate, key, dns, usage="serverAuth,clientAuth"):
        request, new_key, extensions = (self.folder / n for n in ("request", "new.key", "extensions"))
        extensions.write_text(f"subjectAltName=DNS:{dns}\nextendedKeyUsage={usage}\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={dns}",
                "-keyout", new_key, "-out", request)
        made = self.folder / "made.pem"
        openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.folder / f"{self.name}.key",
                "-set_serial", "7", "-days", "2", "-extfile", extensions, "-out", made)
        new_key.rename(key)
        made.rename(certificate)


def test_exactly_the_documented_ports_listen():
    with tempfile.TemporaryDirectory() as name, worker() as one:
        token = pathlib.Path(name) / "token"
        token.write_text("operator-token-0123456\n")
        said = one.ready()
        expect(set(listening_ports(one.child.pid)) == {port_of(said["listen"]), port_of(said["http"])},
               f"{listening_ports(one.child.pid)} {said}")
        with router(said["listen"], "--admin-port=0", f"--admin-token-file={token}", "--metrics-port=0") as process:
            told = process.ready()
            ports = listening_ports(process.child.pid)
            expect(set(ports) == {port_of(told[k]) for k in ("listen", "grpc", "admin", "metrics")}, f"{ports} {told}")
            expect(set(ports.values()) == {"0100007F"}, f"not loopback alone: {ports}")
        with router(said["listen"]) as process:
            told = process.ready()
            expect(set(listening_ports(process.child.pid)) == {port_of(told["listen"]), port_of(told["grpc"])}, "")


def core_limit(process):
    line = next(x for x in pathlib.Path(f"/proc/{process.child.pid}/limits").read_text().splitlines() if "core file" in x)
    return line.split()[4:6]


def test_no_crash_writes_keys_and_prompts_to_a_disk():
    with worker("--no-core-dumps") as one, router(one.ready()["listen"], "--no-core-dumps") as process:
        process.ready()
        expect(core_limit(one) == core_limit(process) == ["0", "0"], (core_limit(one), core_limit(process)))
    with worker("--core-dumps") as one, router(one.ready()["listen"], "--core-dumps") as process:
        process.ready()
        ours = [str(x) if x != resource.RLIM_INFINITY else "unlimited" for x in resource.getrlimit(resource.RLIMIT_CORE)]
        expect(core_limit(one) == core_limit(process) == ours, (core_limit(one), core_limit(process), ours))


def test_keys_are_reloaded_and_the_admin_port_drains():
    with tempfile.TemporaryDirectory() as name, worker() as one:
        folder = pathlib.Path(name)
        keys, salt, token = folder / "keys.json", folder / "salt", folder / "token"
        keys.write_text(json.dumps({"keys": [key_entry("first-key-0123456", "acme"),
                                             key_entry("second-key-0123456", "beta", models=["another"])]}))
        salt.write_text("a secret of at least sixteen bytes\n")
        token.write_text("operator-token-0123456\n")
        with router(one.ready()["listen"], f"--api-key-file={keys}", f"--salt-key-file={salt}",
                    "--admin-port=0", f"--admin-token-file={token}") as process:
            told = process.ready()
            port, admin = port_of(told["listen"]), port_of(told["admin"])

            def status(key):
                return ask(port, "POST", "/v1/completions", PROMPT, key)[0]

            expect([status(k) for k in (None, "wrong-key", "second-key-0123456", "first-key-0123456")] == [401, 401, 404, 200],
                   process.output())
            expect(ask(port, "GET", "/health")[0] == 200, "probes need no key")
            replace(keys, json.dumps({"keys": [key_entry("third-key-0123456", "acme")]}))
            wait_until(lambda: status("third-key-0123456") == 200, "the new key holds")
            expect(status("first-key-0123456") in (401, 429), "the old one does not; wrong ones came often")
            replace(keys, "{\"keys\": [")
            process.wait_for_line("the last good keys hold")
            expect(status("third-key-0123456") == 200, "a broken file changes nothing")
            expect("third-key-0123456" not in process.output(), "no key in the log")

            salt.write_text("another secret of sixteen bytes or more\n")
            process.wait_for_line("the salt key has changed")
            expect(status("third-key-0123456") == 200, "under the new salts")
            salt.write_text("short\n")
            process.wait_for_line("the last good key holds")
            expect(status("third-key-0123456") == 200, "as before")
            expect(ask(admin, "GET", "/admin/workers", key="third-key-0123456")[0] in (401, 429), "a client's key")
            replace(token, "rotated-token-0123456\n")
            wait_until(lambda: ask(admin, "GET", "/admin/workers", key="rotated-token-0123456")[0] == 200, "the new token")
            expect(ask(admin, "GET", "/admin/workers", key="operator-token-0123456")[0] in (401, 429), "the old token")
            replace(token, "operator-token-0123456\n")
            wait_until(lambda: ask(admin, "GET", "/admin/workers", key="operator-token-0123456")[0] == 200, "and back")
            running = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            running.request("POST", "/v1/completions", json.dumps({**PROMPT, "max_tokens": 1500, "ignore_eos": True,
                                                                   "stream": True}),
                            {"Authorization": "Bearer third-key-0123456", "x-request-id": "long-one"})
            answer = running.getresponse()
            answer.readline()
            code, told = ask(admin, "GET", "/admin/requests/long-one", key="operator-token-0123456")
            expect(code == 200 and told["state"] == "generating", told)
            expect(told["attempts"][-1]["end"] == "running" and told["attempts"][-1]["first_output_us"] > 0, told)
            code, listed = ask(admin, "GET", "/admin/requests", key="operator-token-0123456")
            expect(listed["requests"][0]["request_id"] == "long-one", listed["requests"][0])
            running.close()
            code, seen = ask(admin, "GET", "/admin/workers", key="operator-token-0123456")
            expect(code == 200 and seen["workers"][0]["phase"] == "ready", seen)
            code, _ = ask(port, "POST", "/v1/completions", PROMPT, "third-key-0123456", headers={"x-request-id": "look-at-me"})
            code, record = ask(admin, "GET", "/admin/requests/look-at-me", key="operator-token-0123456")
            expect(code == 200 and record["tenant"] == "acme" and record["attempts"], record)
            expect(ask(admin, "PUT", "/admin/log-level", {"level": "debug"}, "operator-token-0123456")[0] == 200, "level")
            expect(ask(admin, "POST", "/admin/drain", key="operator-token-0123456")[0] == 200, "drain")
            expect(process.wait() == 0, process.output())


def test_certificates_on_both_sides_are_exchanged_under_a_running_stream():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        first, second = Authority(folder, "first"), Authority(folder, "second")
        edge, edge_key = folder / "edge.pem", folder / "edge.key"
        first.issue(edge, edge_key, "localhost")
        inner = {}
        for who in ("worker", "router"):
            inner[who] = (folder / f"{who}.pem", folder / f"{who}.key")
            first.issue(*inner[who], f"quire-{who}", "serverAuth" if who == "worker" else "clientAuth")
        authorities = folder / "authorities.pem"
        authorities.write_text(first.file.read_text())

        def files(prefix, who):
            return (f"--{prefix}cert-file={inner[who][0]}", f"--{prefix}key-file={inner[who][1]}",
                    f"--{prefix}ca-file={authorities}")

        with worker(*files("tls-", "worker")) as one:
            address = one.ready()["listen"]
            with router(address, *files("worker-tls-", "router"), f"--tls-cert-file={edge}",
                        f"--tls-key-file={edge_key}") as process:
                told = process.ready()
                expect(told["scheme"] == "https", told)
                port = port_of(told["listen"])
                trust = ssl.create_default_context(cafile=first.file)
                expect(ask(port, "POST", "/v1/completions", PROMPT, context=trust)[0] == 200, process.output())
                stream = http.client.HTTPSConnection("localhost", port, timeout=60, context=trust)
                stream.request("POST", "/v1/completions", json.dumps(
                    {**PROMPT, "max_tokens": 1500, "ignore_eos": True, "stream": True}))
                answer = stream.getresponse()
                answer.readline()

                authorities.write_text(first.file.read_text() + second.file.read_text())
                second.issue(edge, edge_key, "localhost")
                second.issue(*inner["worker"], "quire-worker")
                newer = ssl.create_default_context(cafile=second.file)

                wait_until(lambda: ask(port, "POST", "/v1/completions", PROMPT, context=newer)[0] == 200,
                           "the new certificate is shown")
                rest = answer.read().decode()
                expect(rest.rstrip().endswith("data: [DONE]"), rest[-300:])
            # A router that is not told a certificate, one that asks for another name, and a worker that would be a router
            # stay out.
            inner["impostor"] = (folder / "impostor.pem", folder / "impostor.key")
            first.issue(*inner["impostor"], "quire-worker")
            for wrong in ((), (*files("worker-tls-", "router"), "--worker-tls-name=somebody-else"),
                          files("worker-tls-", "impostor")):
                with router(address, "--log-format=json", *wrong) as process:
                    port = port_of(json.loads(process.wait_for_line('"listening"'))["http"])
                    expect(ask(port, "POST", "/v1/completions", PROMPT)[0] in (404, 503), process.output())


def test_the_command_line_speaks_tls_and_sends_its_key():
    with tempfile.TemporaryDirectory() as name, worker() as one:
        folder = pathlib.Path(name)
        authority = Authority(folder, "first")
        edge, edge_key, keys, salt = (folder / n for n in ("edge.pem", "edge.key", "keys.json", "salt"))
        authority.issue(edge, edge_key, "localhost")
        keys.write_text(json.dumps({"keys": [key_entry("a-key-of-acme-0123456", "acme")]}))
        salt.write_text("a secret of at least sixteen bytes\n")
        said = one.ready()
        plain_port = port_of(said["http"])
        with router(said["listen"], f"--api-key-file={keys}", f"--salt-key-file={salt}",
                    f"--tls-cert-file={edge}", f"--tls-key-file={edge_key}") as process:
            port = port_of(process.ready()["listen"])
            url, trust = f"--url=https://localhost:{port}", f"--cacert={authority.file}"
            clean = {k: v for k, v in os.environ.items() if k not in ("OPENAI_API_KEY", "QUIRE_API_KEY")}

            def quire(*args, stdin="", **environment):
                done = subprocess.run([BIN / "quire", *args], input=stdin, env={**clean, **environment}, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
                return done.returncode, done.stdout, done.stderr

            complete = ("complete", "Once upon a time", "--max-tokens=4", "--temperature=0")
            code, out, err = quire(*complete, url, trust, "--api-key=a-key-of-acme-0123456")
            expect(code == 0 and out.strip(), (code, out, err))
            for variable in ("OPENAI_API_KEY", "QUIRE_API_KEY"):
                expect(quire(*complete, url, trust, **{variable: "a-key-of-acme-0123456"}) == (0, out, ""), variable)
            code, chatted, err = quire("chat", url, trust, "--max-tokens=4", stdin="Hello\n",
                                       QUIRE_API_KEY="a-key-of-acme-0123456")
            expect(code == 0 and chatted.strip(), (code, chatted, err))
            expect(quire("models", url, trust, "--api-key=a-key-of-acme-0123456") == (0, "demo\n", ""), "models")
            for arguments, mention in (
                    ((url, trust), "--api-key"),
                    ((url, trust, "--api-key=another-key-0123456"), "not known here"),
                    ((url, "--api-key=a-key-of-acme-0123456"), "not trusted"),
                    ((f"--url=https://127.0.0.1:{port}", trust), "not trusted"),
                    ((f"--url=http://localhost:{port}",), f"https://localhost:{port}"),
                    ((f"--url=https://localhost:{plain_port}",), "no TLS there"),
                    (("--url=http://127.0.0.1:1",), "is it running?"),
                    ((url, f"--cacert={salt}"), "PEM")):
                for command in (complete, ("models",)):
                    code, out, err = quire(*command, *arguments)
                    expect(code in (1, 2) and mention in err and len(err.splitlines()) == 1, (arguments, code, err))


def test_what_would_be_open_to_all_does_not_start():
    cases = [
        (["quire-router", "--worker=127.0.0.1:9", "--host=0.0.0.0", "--port=0", "--grpc-port=0"], "--api-key-file"),
        (["quire-worker", "--model", DEMO, "--listen=0.0.0.0:0"], "--tls-cert-file"),
        (["quire-router", "--worker=127.0.0.1:9", "--api-key-file=/nowhere"], "--salt-key-file"),
        (["quire-router", "--worker=127.0.0.1:9", "--admin-port=0"], "--admin-token-file"),
    ]
    for command, mention in cases:
        code, output = run([BIN / command[0], *command[1:]])
        expect(code == 2 and mention in output, f"{command}: {code} {output}")
