"""A hub of models on loopback: the API, a second host for large files, and faults on request. Standard library only."""
import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse


def git_digest(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    def __init__(self, files, large=(), gated=False):
        self.files = dict(files)
        self.large = set(large)  # names of files that the second host has
        self.gated = gated
        self.commit = hashlib.sha1(repr(sorted((n, hashlib.sha1(d).hexdigest()) for n, d in self.files.items())).encode()).hexdigest()

    def entry(self, name):
        data = self.files[name]
        entry = {"type": "file", "path": name, "size": len(data), "oid": git_digest(data)}
        if name in self.large:
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return entry


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):  # a client that left
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name == "Content-Length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.hub.requests.append((self.server.name, self.command, self.path, dict(self.headers)))
        if self.server.name == "storage":
            return self.server.hub.storage(self)
        return self.server.hub.api(self)


class Hub:
    """Faults are attributes: what a test sets holds until it sets something else."""

    def __init__(self, repos, page=1000):
        self.repos, self.page = repos, page
        self.lock = threading.Lock()
        self.requests = []
        self.served_bytes = 0  # of large files
        self.cuts = []         # after how many more bytes of large files a connection is closed
        self.busy = 0          # how many requests for large files get 429
        self.ranges = True
        self.expired = 0       # how many signed addresses are not known any more
        self.damage = None     # a byte that is another one
        self.tree = None       # what is told in place of the list of files
        self.short = 0         # bytes that are missing at the end of every body
        self.redirect_to = None
        self.delay = None      # called with bytes before they are sent
        self.servers = {}
        for name in ("hub", "storage"):
            server = Server(("127.0.0.1", 0), Handler)
            server.hub, server.name = self, name
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            self.servers[name] = server

    @property
    def url(self):
        return f"http://127.0.0.1:{self.servers['hub'].server_port}"

    def close(self):
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # --- the API ----------------------------------------------------------------------------------

    def api(self, request):
        path, _, query = request.path.partition("?")
        path = urllib.parse.unquote(path)
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/(.+)", path)
        if found:
            return self.about(request, *found.groups(), urllib.parse.parse_qs(query))
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if found:
            return self.resolve(request, *found.groups())
        return request.answer(404, {"error": "no such page"})

    def repo_for(self, request, name, revision):
        repo = self.repos.get(name)
        if repo is None:
            request.answer(404, {"error": "Repository not found"}, [("X-Error-Code", "RepoNotFound")])
            return None
        if repo.gated and request.headers.get("Authorization") != "Bearer the-token":
            request.answer(401 if "Authorization" not in request.headers else 403, {"error": "gated"},
                           [("X-Error-Code", "GatedRepo")])
            return None
        if revision not in ("main", "v1", repo.commit):
            request.answer(404, {"error": "Invalid rev id"}, [("X-Error-Code", "RevisionNotFound")])
            return None
        return repo

    def about(self, request, name, what, revision, query):
        repo = self.repo_for(request, name, revision)
        if repo is None:
            return
        if what == "revision":
            return request.answer(200, {"id": name, "modelId": name, "sha": repo.commit, "private": False, "tags": [],
                                        "siblings": [{"rfilename": n} for n in repo.files]},
                                  [("Content-Type", "application/json")])
        entries = self.tree if self.tree is not None else [repo.entry(n) for n in sorted(repo.files)]
        start = int(query.get("cursor", ["0"])[0])
        headers = [("Content-Type", "application/json")]
        if start + self.page < len(entries):
            headers.append(("Link", f'<{self.url}/api/models/{name}/tree/{revision}?recursive=true&cursor={start + self.page}>; rel="next"'))
        return request.answer(200, entries[start:start + self.page], headers)

    def resolve(self, request, name, revision, path):
        repo = self.repo_for(request, name, revision)
        if repo is None:
            return
        if path not in repo.files:
            return request.answer(404, b"", [("X-Error-Code", "EntryNotFound")])
        data = repo.files[path]
        headers = [("X-Repo-Commit", repo.commit)]
        if path not in repo.large:
            return self.send(request, data, [*headers, ("ETag", f'"{git_digest(data)}"')], False)
        where = self.redirect_to or f"http://127.0.0.1:{self.servers['storage'].server_port}/{name}/{path}?signed=1"
        digest = hashlib.sha256(data).hexdigest()
        return request.answer(302, b"", [*headers, ("X-Linked-Etag", f'"{digest}"'), ("X-Linked-Size", str(len(data))),
                                         ("ETag", f'"{digest}"'), ("Location", where)])

    # --- the second host --------------------------------------------------------------------------

    def storage(self, request):
        with self.lock:
            busy, self.busy = self.busy > 0, max(self.busy - 1, 0)
            expired, self.expired = self.expired > 0, max(self.expired - 1, 0)
        if busy:
            return request.answer(429, b"slow down", [("Retry-After", "0")])
        if expired:
            return request.answer(403, b"expired")
        org, repo, path = request.path.partition("?")[0].lstrip("/").split("/", 2)
        data = self.repos[f"{org}/{repo}"].files[path]
        if self.damage is not None:
            data = data[:self.damage] + bytes([data[self.damage] ^ 1]) + data[self.damage + 1:]
        return self.send(request, data, [("ETag", '"of-the-storage"')], True)

    def send(self, request, data, headers, counted):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
        status, first, last = 200, 0, len(data) - 1
        if wanted and self.ranges and data:
            status, first = 206, int(wanted[1])
            last = min(int(wanted[2] or last), last)
            headers = [*headers, ("Content-Range", f"bytes {first}-{last}/{len(data)}")]
        body = memoryview(data)[first:last + 1]
        headers = [*headers, ("Content-Length", str(len(body))), ("Accept-Ranges", "bytes")]
        if request.command == "HEAD" or not counted:
            return request.answer(status, bytes(body), headers)
        request.send_response(status)
        for name, value in headers:
            request.send_header(name, value)
        request.end_headers()
        self.send_body(request, body[:len(body) - self.short])
        if self.short:
            request.close_connection = True

    def send_body(self, request, body):
        while len(body) > 0:
            if self.delay:
                self.delay(min(len(body), 65536))
            with self.lock:
                count = min(len(body), 65536, self.cuts[0] if self.cuts else len(body))
                cut = bool(self.cuts) and count == self.cuts[0]
                if self.cuts:
                    self.cuts[0] -= count
                    if cut:
                        self.cuts.pop(0)
            try:
                request.wfile.write(body[:count])
            except OSError:
                request.close_connection = True
                return
            with self.lock:
                self.served_bytes += count
            body = body[count:]
            if cut:
                request.close_connection = True
                return
