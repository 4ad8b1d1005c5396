"""Clients behind nginx: the router takes a trusted proxy's word for who they are, and nobody else's."""
import hashlib
import http.client
import json
import pathlib
import socket
import tempfile

from edge_test import port_of, router, worker
from harness import expect, wait_until
from nginx import nginx, stream_module

PROXY = "127.0.0.2"  # by which nginx asks
KEY = "a-key-of-acme-0123456"

HTTP = """
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{router};
      proxy_bind {proxy};
      proxy_http_version 1.1;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}"""
STREAM = """
stream {{
  server {{
    listen 127.0.0.1:{port};
    proxy_pass 127.0.0.1:{router};
    proxy_bind {proxy};
    proxy_protocol on;
  }}
}}"""


def free_ports(count):
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in listening]
    for one in listening:
        one.close()
    return ports


class Nginx:
    def __init__(self, folder, router_port):
        self.http, self.stream = free_ports(2)
        self.process = nginx(folder, HTTP.format(port=self.http, router=router_port, proxy=PROXY), stream_module(),
                             STREAM.format(port=self.stream, router=router_port, proxy=PROXY))
        wait_until(lambda: self.answers(), "nginx listens")

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.http)).close()
            return True
        except OSError:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.close()


def client(port, source):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(source, 0))


def ask(connection, key=None, path="/v1/models", headers=()):
    sent = dict(headers)
    if key:
        sent["Authorization"] = f"Bearer {key}"
    connection.request("GET", path, headers=sent)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_nginx_says_who_its_clients_are():
    with tempfile.TemporaryDirectory() as name, worker() as one:
        folder = pathlib.Path(name)
        keys, salt = folder / "keys.json", folder / "salt"
        keys.write_text(json.dumps({"keys": [{"sha256": hashlib.sha256(KEY.encode()).hexdigest(), "tenant": "acme"}]}))
        salt.write_text("a salt of thirty-two bytes for a test")
        with router(one.ready()["listen"], f"--api-key-file={keys}", f"--salt-key-file={salt}",
                    f"--trusted-proxies={PROXY}", "--max-connections-per-address=2") as process:
            port = port_of(process.ready()["listen"])
            with Nginx(folder, port) as nginx:
                # X-Forwarded-For: wrong keys of one client are slowed down, whatever it writes there itself.
                wrong = [ask(client(nginx.http, "127.0.0.3"), "a-wrong-key-0123456",
                             headers={"X-Forwarded-For": f"192.0.2.{i}"}) for i in range(30)]
                expect(wrong[:20] == [401] * 20 and 429 in wrong[20:], wrong)
                expect(ask(client(nginx.http, "127.0.0.4"), "a-wrong-key-0123456") == 401, "another client")
                expect(ask(client(nginx.http, "127.0.0.3"), KEY) == 200, "a right key")
                # PROXY: each client has its share, and the proxy itself none.
                held = [client(nginx.stream, "127.0.0.5") for _ in range(3)]
                expect([ask(c, KEY) for c in held[:2]] == [200, 200], "its share")
                expect(ask(held[2], KEY) == 503, "one more")
                others = [client(nginx.stream, f"127.0.0.{i}") for i in (6, 7, 8)]
                expect([ask(c, KEY) for c in others] == [200] * 3, "others")
                for one_of_them in held + others:
                    one_of_them.close()
            # Who is no trusted proxy names nobody.
            expect([ask(client(port, "127.0.0.9"), "a-wrong-key-0123456", headers={"X-Forwarded-For": f"192.0.2.{i}"})
                    for i in range(25)].count(429) > 0, "its own words")
