"""A registry of OCI artifacts on loopback whose faults a test sets, with a second host for its blobs. Standard library only."""
import hashlib
import json
import threading

from hub import Handler, Server


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def layer_of(data, media_type, path=None):
    layer = {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}
    return {**layer, "annotations": {"org.cncf.model.filepath": path}} if path is not None else layer


def manifest_of(layers, config=b"{}"):
    return {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": "application/vnd.cncf.model.manifest.v1+json",
            "config": layer_of(config, "application/vnd.cncf.model.config.v1+json"), "layers": layers}


class Registry:
    """What a test sets holds until it sets something else."""

    def __init__(self):
        self.manifests = {}    # "REPO:TAG" → bytes, or a manifest
        self.blobs = {}        # digest → bytes
        self.requests = []     # (host, path, headers)
        self.token = None      # what is asked for; None: nothing
        self.challenge = None  # in place of the usual one
        self.token_answer = None
        self.status = None     # of manifests
        self.blob_status = None
        self.promised = None   # Docker-Content-Digest
        self.redirect = False  # of blobs, to the second host
        self.location = None   # where to, in place of it
        self.short = 0         # bytes that are missing at the end of each blob
        self.servers = {}
        for name in ("hub", "storage"):
            server = Server(("127.0.0.1", 0), Handler)
            server.hub, server.name, server.lock = self, name, threading.Lock()
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            self.servers[name] = server

    @property
    def host(self):
        return f"127.0.0.1:{self.servers['hub'].server_port}"

    def close(self):
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def put(self, name, layers, blobs=()):
        for data in blobs:
            self.blobs[digest_of(data)] = data
        self.manifests[name] = json.dumps(manifest_of(layers)).encode()

    def put_files(self, name, files, kind="weight"):
        """A model of raw layers."""
        self.put(name, [layer_of(data, f"application/vnd.cncf.model.{kind}.v1.raw", path) for path, data in files.items()],
                 files.values())

    # --- what it answers --------------------------------------------------------------------------

    def api(self, request):
        path = request.path.partition("?")[0]
        if path == "/token":
            answer = {"token": self.token} if self.token_answer is None else self.token_answer
            return request.answer(200, answer)
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            challenge = self.challenge or f'Bearer realm="http://{self.host}/token",service="a \\"registry\\"",scope="x"'
            return request.answer(401, {"errors": []}, [("WWW-Authenticate", challenge)])
        repo, _, reference = path.removeprefix("/v2/").partition("/manifests/")
        if reference:
            return self.manifest(request, repo, reference)
        return self.blob(request, path)

    def manifest(self, request, repo, reference):
        if self.status:
            return request.answer(self.status, {"errors": [{"code": "X"}]})
        data = self.manifests.get(f"{repo}:{reference}")
        for one in self.manifests.values():
            if digest_of(one) == reference:
                data = one
        if data is None:
            return request.answer(404, {"errors": [{"code": "MANIFEST_UNKNOWN"}]})
        headers = [("Content-Type", "application/vnd.oci.image.manifest.v1+json")]
        return request.answer(200, data, headers + ([("Docker-Content-Digest", self.promised)] if self.promised else []))

    def blob(self, request, path):
        if self.blob_status:
            return request.answer(self.blob_status, b"no", [("Retry-After", "0")])
        if self.redirect and request.server.name == "hub":
            where = self.location or f"http://127.0.0.1:{self.servers['storage'].server_port}{path}?signed=1"
            return request.answer(307, b"", [("Location", where)])
        data = self.blobs.get(path.rpartition("/")[2])
        if data is None:
            return request.answer(404, b"")
        request.send_response(200)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data[:len(data) - self.short])
        request.close_connection = request.close_connection or self.short > 0
        return None

    def storage(self, request):
        return self.blob(request, request.path.partition("?")[0])
