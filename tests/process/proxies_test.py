"""Clients behind nginx: the router takes a trusted proxy's word for who they are, and nobody else's."""
import hashlib
import http.client
import json
import pathlib
import shutil
import socket
import subprocess
import tempfile

from edge_test import port_of, router, worker
from harness import ROOT, expect, wait_until

UNPACKED = ROOT / ".cache/debian"  # where ./dev unpacks nginx
PROXY = "127.0.0.2"  # by which nginx asks
KEY = "a-key-of-acme-0123456"

CONFIG = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
load_module {module};
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{http_port};
    location / {{
      proxy_pass http://127.0.0.1:{router};
      proxy_bind {proxy};
      proxy_http_version 1.1;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}
}}
stream {{
  server {{
    listen 127.0.0.1:{stream_port};
    proxy_pass 127.0.0.1:{router};
    proxy_bind {proxy};
    proxy_protocol on;
  }}
}}
"""


def free_ports(count):
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in listening]
    for one in listening:
        one.close()
    return ports


class Nginx:
    def __init__(self, folder, router_port):
        program = shutil.which("nginx") or UNPACKED / "usr/sbin/nginx"
        modules = [at / "usr/lib/nginx/modules/ngx_stream_module.so" for at in (pathlib.Path("/"), UNPACKED)]
        module = next((m for m in modules if m.exists()), modules[-1])
        expect(pathlib.Path(program).exists() and module.exists(), "nginx is not here: ./dev test unpacks it")
        self.http, self.stream = free_ports(2)
        config = folder / "nginx.conf"
        config.write_text(CONFIG.format(folder=folder, module=module, router=router_port, proxy=PROXY,
                                        http_port=self.http, stream_port=self.stream))
        self.child = subprocess.Popen([program, "-p", str(folder), "-c", str(config)])
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
        self.child.terminate()
        self.child.wait(20)


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
