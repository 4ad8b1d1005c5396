"""Models by `oci://`: against go-containerregistry's registry, to which its own client pushes, and against a hostile one."""
import base64
import hashlib
import io
import json
import random
import re
import subprocess
import tarfile

import pytest
from client import REGISTRY, ensure_registry
from harness import DEMO, Process, expect, free_port
from machine import Machine
from registry import Registry, digest_of, layer_of, manifest_of

FILES = {path.name: path.read_bytes() for path in DEMO.iterdir() if path.suffix in (".json", ".safetensors", ".jinja")}
BYTES = random.Random(5).randbytes(9 << 20)
WEIGHT, CONFIG = "application/vnd.cncf.model.weight.v1.", "application/vnd.cncf.model.weight.config.v1."
OLLAMA = "application/vnd.ollama.image."


def type_of(name):
    return (WEIGHT if name.endswith(".safetensors") else CONFIG) + "raw"


def tar_of(files, mode="w", more=()):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.PAX_FORMAT) as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for entry in more:
            tar.addfile(entry)
    return out.getvalue()


class Real:
    """The registry in Go."""

    def __init__(self, folder, *flags):
        ensure_registry()
        self.folder = folder
        self.process = Process([REGISTRY, *flags], stdin=subprocess.PIPE)
        self.host = "127.0.0.1:" + self.process.wait_for_line("port ").split()[1]
        self.pushed = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.__exit__(None, None, None)

    def push(self, name, layers, config_type="application/vnd.cncf.model.config.v1+json", index=False):
        """Layers are (data, media type, path or None). Returns the digest."""
        spec = {"Name": f"{self.host}/{name}", "ConfigType": config_type, "Config": "{}", "Index": index, "Layers": []}
        for number, (data, media_type, path) in enumerate(layers):
            file = self.folder / f"layer-{self.pushed}-{number}"
            file.write_bytes(data)
            notes = {"org.cncf.model.filepath": path} if path else {}
            spec["Layers"].append({"Path": str(file), "MediaType": media_type, "Annotations": notes})
        self.pushed += 1
        self.process.child.stdin.write(json.dumps(spec) + "\n")
        self.process.child.stdin.flush()
        return self.process.wait_for_line("pushed ").split()[1]


@pytest.fixture
def machine(folder):
    return Machine(folder / "home")


@pytest.fixture
def registry():
    with Registry() as registry:
        yield registry


def here(path):
    return {p.name: p.read_bytes() for p in path.iterdir() if not p.name.startswith(".")}


def test_models_that_go_containerregistry_pushed_come_whole_and_serve(machine, folder):
    with Real(folder) as real:
        layers = [(data, type_of(name), name) for name, data in FILES.items()]
        extra = [(b"print(1)", "application/vnd.cncf.model.code.v1.raw", "run.py"), (b"# doc", "application/vnd.cncf.model.doc.v1.raw", "README.md"),
                 (b"free", "application/vnd.cncf.model.doc.v1.raw", "LICENSE")]
        digest = real.push("org/raw:v1", layers + extra)
        base = f"oci://{real.host}/org"
        path = machine.pulled(f"{base}/raw:v1")
        expect(path == machine.home / ".cache/quire/models/raw:v1" and here(path) == {**FILES, "LICENSE": b"free"}, list(path.iterdir()))
        code, out, err = machine.quire("pull", f"{base}/raw:v1")
        expect(code == 0 and "nothing was left to fetch" in err, err)
        by_digest = machine.pulled(f"{base}/raw@{digest}")
        expect(by_digest.name == "raw:" + digest[7:19] and here(by_digest) == here(path), by_digest)
        settings = {name: data for name, data in FILES.items() if not name.endswith(".safetensors")}
        weights = {name: data for name, data in FILES.items() if name.endswith(".safetensors")}
        real.push("org/tars", [(tar_of(weights), WEIGHT + "tar", "weights.tar"), (tar_of(settings, "w:gz"), CONFIG + "tar+gzip", None)])
        expect(here(machine.pulled(f"{base}/tars")) == FILES, "out of archives")
        expect("nothing was left to fetch" in machine.quire("pull", f"{base}/tars:latest")[2], "archives are not fetched again")
        real.push("org/index", layers, index=True)
        expect(here(machine.pulled(f"{base}/index")) == FILES, "out of an index")
        # The name works wherever models have names.
        code, out, err = machine.quire("run", f"{base}/raw:v1", "Tell me a story", "--max-tokens=8", "--seed=1")
        expect(code == 0 and len(out.split()) > 3, (code, out, err))
        expect(re.search(r"^raw:v1 +5\.\d MB", machine.quire("list")[1], re.M), "listed")
        code, out, err = machine.quire("show", f"{base}/raw:v1")
        expect(code == 0 and "name         raw:v1" in out, (out, err))
        expect(machine.quire("cp", f"{base}/raw:v1", "mine")[0] == 0 and machine.quire("rm", "mine")[0] == 0, "copied")
    with Process(machine.command("serve", f"{base}/raw:v1", "--port=0", "--grpc-port=0"), env=machine.env) as server:
        expect(" serves raw:v1" in server.wait_for_line("ready: http://"), "served without the registry")
    expect(machine.quire("rm", f"{base}/raw:v1")[0] == 0 and not path.exists(), "gone")


def test_a_tag_that_moves_brings_the_new_model_and_no_byte_twice(machine, folder):
    with Real(folder) as real:
        one = {**FILES, "old.json": b"{}"}
        real.push("org/m", [(data, type_of(name), name) for name, data in one.items()])
        path = machine.pulled(f"oci://{real.host}/org/m")
        weights = bytearray(FILES["model.safetensors"])
        weights[-1] ^= 1
        two = {**FILES, "model.safetensors": bytes(weights)}
        real.push("org/m", [(data, type_of(name), name) for name, data in two.items()])
        code, out, err = machine.quire("pull", f"oci://{real.host}/org/m")
        expect(code == 0 and here(path) == two, (err, "the same sizes, another digest; what is no longer in it is gone"))
        expect(f"{len(weights) / 1e6:.1f} MB fetched now" in err, err)


def test_ollamas_models_come_with_what_is_of_use_and_say_what_is_not(machine, folder):
    with Real(folder) as real:
        layers = [(BYTES, OLLAMA + "model", None), (b"{{ .Prompt }}", OLLAMA + "template", None), (b"Be kind.", OLLAMA + "system", None),
                  (b'{"stop": ["x"]}', OLLAMA + "params", None), (b"free", OLLAMA + "license", None), (b"and more", OLLAMA + "license", None)]
        config = "application/vnd.docker.container.image.v1+json"
        real.push("library/tiny:1b", layers, config)
        code, out, err = machine.quire("pull", f"oci://{real.host}/library/tiny:1b")
        path = machine.home / ".cache/quire/models/tiny:1b/model.gguf"
        expect(code == 0 and out == f"{path}\n" and here(path.parent) == {"model.gguf": BYTES, "LICENSE": b"free"}, (code, out, err))
        for mention in ("does not use: its template, which is Go's", "its system text", "its sampling settings"):
            expect(mention in err, err)
        real.push("library/tuned", [*layers, (b"x", OLLAMA + "adapter", None)], config)
        machine.refused(2, "a LoRA adapter as a layer", "pull", f"oci://{real.host}/library/tuned")
        real.push("ai/docker", [(BYTES, "application/vnd.docker.ai.gguf.v3", None)], "application/vnd.docker.ai.model.config.v0.1+json")
        expect(machine.pulled(f"oci://{real.host}/ai/docker").read_bytes() == BYTES, "Docker's")
        real.push("org/image", [(b"x", "application/vnd.oci.image.layer.v1.tar+gzip", None)], config)
        machine.refused(3, "is a container image, no model", "pull", f"oci://{real.host}/org/image")


def login(machine, host, text="someone:a-word", **more):
    entry = {"auths": {host: {"auth": base64.b64encode(text.encode()).decode()}}} if text else {}
    folder = machine.home / ".docker"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**entry, **more}))


def test_tokens_and_accounts(machine, folder):
    layers = [(data, type_of(name), name) for name, data in FILES.items()]
    with Real(folder, "-account=someone:a-word", "-uses=4") as real:
        for name in ("org/open", "private/model"):
            real.push(name, layers)
        # A token is good for four blobs, and the model has more: it is renewed.
        expect(len(FILES) > 4 and here(machine.pulled(f"oci://{real.host}/org/open")) == FILES, "without an account")
        private = f"oci://{real.host}/private/model"
        machine.refused(1, f"`docker login {real.host}` writes an account to", "pull", private)
        login(machine, real.host, None, credsStore="desktop")
        machine.refused(1, "leaves its account to the helper 'desktop', which Quire does not run", "pull", private)
        login(machine, real.host, None, credHelpers={real.host: "pass"})
        machine.refused(1, "leaves its account to the helper 'pass'", "pull", private)
        login(machine, real.host, "someone:wrong")
        machine.refused(1, "the account 'someone' of", "pull", private)
        login(machine, real.host, "someone")
        machine.refused(2, "no USER:PASSWORD in base64", "pull", private)
        login(machine, real.host)
        expect(here(machine.pulled(private)) == FILES, "with the account")
    with Real(folder, "-account=someone:a-word", "-basic") as real:
        real.push("org/basic", layers)
        login(machine, "elsewhere.example")
        machine.refused(1, "docker login", "pull", f"oci://{real.host}/org/basic")
        (folder / "other").mkdir()
        (machine.home / ".docker" / "config.json").unlink()
        login(machine, f"http://{real.host}/v1/")
        (machine.home / ".docker" / "config.json").rename(folder / "other" / "config.json")
        machine.pulled(f"oci://{real.host}/org/basic", env={"DOCKER_CONFIG": str(folder / "other")})


def test_a_stand_in_and_the_real_registry_bring_the_same(machine, registry, folder):
    with Real(folder) as real:
        real.push("org/m", [(data, type_of(name), name) for name, data in FILES.items()])
        theirs = here(machine.pulled(f"oci://{real.host}/org/m"))
    machine.quire("rm", "m")
    registry.put_files("org/m:latest", FILES)
    expect(here(machine.pulled(f"oci://{registry.host}/org/m")) == theirs == FILES, "equal")


def test_no_token_and_no_account_goes_to_another_host(machine, registry):
    registry.put_files("org/m:latest", FILES)
    registry.token, registry.redirect = "the-token", True
    login(machine, registry.host)
    machine.pulled(f"oci://{registry.host}/org/m")
    seen = {name for name, *_ in registry.requests}
    expect(seen == {"hub", "storage"}, seen)
    for name, _, path, headers in registry.requests:
        given = headers.get("Authorization", "")
        expect(not given if name == "storage" else given.startswith(("Basic ", "Bearer ", "")), (name, path, given))
        expect(not given.startswith("Basic ") or path.startswith("/token?service=a%20%22registry%22&scope=repository%3Aorg%2Fm%3Apull"), path)


def test_what_a_hostile_registry_says_ends_the_pull(machine, registry):
    name, model = f"oci://{registry.host}/org/m", "org/m:latest"
    def refused(code, mention, files=None):
        machine.refused(code, mention, "pull", name)
        left = [p for p in machine.home.rglob("*") if p.is_file() and p.suffix in (".safetensors", ".gguf", ".py")]
        expect(not left, (mention, left))
    registry.put_files(model, FILES)
    for status, code, mention in ((403, 1, "status 403"), (404, 3, "no such repository, tag or digest"), (429, 1, "too many requests"), (500, 1, "status 500")):
        registry.status = status
        refused(code, mention)
    registry.status, registry.promised = None, "sha256:" + "0" * 64
    refused(1, "not the sha256:" + "0" * 64 + " that was promised")
    registry.promised = None
    machine.refused(3, "no such repository", "pull", f"{name}@sha256:{'1' * 64}")
    # Tokens.
    registry.token = "the-token"
    for challenge, mention in (("Digest x", "status 401"), ('Bearer realm="', "status 401"), ("Bearer service=x", "status 401"),
                               ('Bearer realm="file:///etc/passwd"', "its realm of tokens"), ("Bearer realm=x y", "its realm of tokens")):
        registry.challenge = challenge
        machine.refused(2 if "realm of" in mention else 1, mention, "pull", name)
    registry.challenge = None
    for answer in ({}, {"token": 5}, {"token": "a b"}, {"token": "a\r\nX: y"}, b"no JSON"):
        registry.token_answer = answer
        refused(1, "answers without a token")
    registry.token_answer = {"token": "x" * (16 << 10)}
    refused(1, "longer than 16384 bytes")
    registry.token, registry.token_answer = None, None
    # Manifests.
    good = layer_of(b"{}", CONFIG + "raw", "config.json")
    for layers, code, mention in (
            ([{**good, "digest": "sha256:../../x"}], 2, "digest: must be sha256"), ([{**good, "digest": "sha512:" + "0" * 128}], 2, "digest: must be"),
            ([{**good, "digest": "sha256:" + "A" * 64}], 2, "digest: must be"), ([{**good, "size": -1}], 2, "size: must be"),
            ([{**good, "size": 1 << 50}], 2, "size: must be"), ([good] * 1001, 1, "more than 1,000"), ([good, good], 2, "two files of the name config.json"),
            ([7], 2, "layer"), ([{**good, "annotations": []}], 2, "annotations"),
            *(([layer_of(b"x", WEIGHT + "raw", path)], 2, mention) for path, mention in (
                ("../evil.safetensors", "leaves its folder"), ("/etc/evil.json", "leaves its folder"), ("a\nb.json", "characters"),
                ("a/" * 300 + "x.json", "too long"), ("", "empty"))),
            ([layer_of(b"x", WEIGHT + "tar+zstd")], 2, "Quire reads raw, tar and tar+gzip"), ([layer_of(b"x", "application/vnd.cncf.model.weight.v2.raw")], 2, "none of ModelPack's"),
            ([layer_of(b"x", WEIGHT + "raw", "model.bin")], 3, "pickled weights"), ([], 3, "has no model that Quire reads"),
            ([layer_of(q, WEIGHT + "raw", f"m-{q.decode()}.gguf") for q in (b"Q4_0", b"Q5_0")], 3, "has several .gguf files")):
        registry.put(model, layers)
        refused(code, mention)
    for text, mention in ((b"", "manifest"), (b"[]", "manifest"), (b'{"schemaVersion": 1}', "schemaVersion: must be 2"), (b'{"schemaVersion": 2}', "layers: are missing"),
                          (b'{"schemaVersion": 2, "manifests": [{}]}', "digest: must be")):
        registry.manifests[model] = text
        refused(2, mention)
    registry.manifests[model] = b'{"schemaVersion": 2, "manifests": []}'
    refused(3, "the index has no model")
    index = json.dumps({"schemaVersion": 2, "manifests": [{"digest": digest_of(b"x")}]}).encode()
    registry.manifests[model] = json.dumps({"schemaVersion": 2, "manifests": [{"digest": digest_of(index)}]}).encode()
    registry.manifests["nested"] = index
    refused(2, "layers: are missing")  # an index in an index
    limit = 4 << 20
    fitting = json.dumps(manifest_of([])).encode()
    for size, mention in ((limit, "has no model"), (limit + 1, "longer than 4194304 bytes")):
        registry.manifests[model] = fitting + b" " * (size - len(fitting))
        refused(3 if size == limit else 1, mention)
    # Blobs.
    registry.put_files(model, {"m.gguf": BYTES})
    for status, code, mention in ((403, 1, "status 403"), (404, 3, "there is no such file"), (429, 1, "status 429")):
        registry.blob_status = status
        refused(code, mention)
    registry.blob_status, registry.short = None, 100
    refused(1, "closed the connection")
    registry.short = 0
    registry.blobs[digest_of(BYTES)] = BYTES[:-1] + b"x"
    refused(1, "it is thrown away")
    registry.blobs[digest_of(BYTES)] = BYTES[:-1]
    refused(1, "that were promised")
    registry.redirect, registry.location = True, "file:///etc/passwd"
    refused(2, "is no address")
    registry.location = f"http://{registry.host}/v2/org/m/blobs/{digest_of(BYTES)}"
    refused(1, "more than 8 redirects")


def test_archives_are_hostile_too(machine, registry):
    model = "org/m:latest"
    def pull_of(archive, media_type=WEIGHT + "tar"):
        registry.put(model, [layer_of(archive, media_type)], [archive])
        return ("pull", f"oci://{registry.host}/org/m")
    link, device = tarfile.TarInfo("config.json"), tarfile.TarInfo("x.json")
    link.type, link.linkname, device.type = tarfile.SYMTYPE, "/etc/passwd", tarfile.CHRTYPE
    hard = tarfile.TarInfo("x.json")
    hard.type, hard.linkname = tarfile.LNKTYPE, "config.json"
    plain = tar_of({"config.json": b"{}"})
    damaged = plain[:150] + b"7" + plain[151:]
    for archive, code, mention in (
            (tar_of(FILES, more=[link]), 2, "a link or a special file"), (tar_of(FILES, more=[hard]), 2, "a link or a special file"),
            (tar_of(FILES, more=[device]), 2, "a link or a special file"), (tar_of({**FILES, "../evil.json": b"{}"}), 2, "leaves its folder"),
            (tar_of({**FILES, "/evil.json": b"{}"}), 2, "leaves its folder"), (tar_of({**FILES, "a" * 300 + ".json": b"{}"}), 2, "too long"),
            (tar_of(FILES)[:-3 << 20], 1, "ends early"), (damaged, 2, "is no tar, or is damaged"), (b"x" * 5000, 2, "is no tar"),
            (tar_of(FILES, "w:gz")[:-(1 << 20)], 1, "ends early"), (tar_of({f"{i}.bin": b"" for i in range(10001)}), 1, "more than 10,000 entries"),
            (tar_of({"model.safetensors": bytes(64 << 20)}, "w:gz"), 1, "more than 32 bytes for each of its own"),
            (tar_of({"model.bin": b"pickle", "run.py": b"x"}), 3, "there is no config.json")):
        machine.refused(code, mention, *pull_of(archive))
        left = [p for p in machine.home.rglob("*") if p.is_file() and not p.name.startswith(".")]
        expect(not left, (mention, left))
    registry.put(model, [layer_of(plain, CONFIG + "tar"), layer_of(b"[]", CONFIG + "raw", "config.json")], [plain, b"[]"])
    machine.refused(2, "config.json: the model has it twice", "pull", f"oci://{registry.host}/org/m")
    # At the limit, with code that stays out, and a name longer than a header has room for.
    many = {f"{i}.bin": b"" for i in range(10_000 - len(FILES) - 1)}
    long = "deep/" + "n" * 120 + ".json"
    path = machine.pulled(pull_of(tar_of({"./" + name: data for name, data in FILES.items()} | {"run.py": b"x", long: b"{}"}))[1])
    expect(here_below(path) == {**FILES, long: b"{}"}, list(path.rglob("*")))
    machine.quire("rm", "m")
    path = machine.pulled(pull_of(tar_of({**FILES, **many, "run.py": b"x"}, "w:gz"), WEIGHT + "tar+gzip")[1])
    expect(here(path) == FILES, list(path.iterdir()))


def here_below(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file() and not p.name.startswith(".")}


def test_names_that_are_none_say_what_would_be(machine):
    for name, mention in (("oci://", "REGISTRY is a host"), ("oci://org/model", "REGISTRY is a host"), ("oci://ghcr.io", "REPO has small letters"),
                          ("oci://ghcr.io/Org/m", "REPO has small letters"), ("oci://ghcr.io/../m", "REPO has small letters"),
                          ("oci://ghcr.io/m:", "TAG has"), ("oci://ghcr.io/m:a/b", "TAG has"), ("oci://ghcr.io/m@sha256:12", "a digest is"),
                          ("oci://user@ghcr.io/m", "REGISTRY is a host"), ("oci://ghcr.io:x/m", "REGISTRY is a host"), ("oci://ghcr.io:123456/m", "REGISTRY is a host")):
        machine.refused(2, mention, "pull", name)
    machine.refused(1, "is there a way to it from here?", "pull", f"oci://localhost:{free_port()}/m")


def test_bytes_that_are_here_are_not_fetched_again(machine, registry):
    registry.put_files("org/m:latest", {"m.gguf": BYTES})
    name = f"oci://{registry.host}/org/m"
    path = machine.pulled(name)
    for lost in (".files", ".source"):
        (path.parent / lost).unlink()
    code, out, err = machine.quire("pull", name)
    expect(code == 0 and "nothing was left to fetch" in err, err)
    (path.parent / ".files").write_text("../../../etc/passwd\n" * 3)
    expect(machine.quire("pull", name)[0] == 0 and hashlib.sha256(path.read_bytes()).hexdigest() in (path.parent / ".files").read_text(), "a record that cannot be is no harm")
