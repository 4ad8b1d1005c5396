"""`quire pull` and its like against a hub on loopback, beside the hub's own client where that is to be had."""
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import time

import jsonschema
import pytest
from client import PYTHON, ensure
from harness import BIN, DEMO, ROOT, Process, expect, free_port, wait_until
from hub import Hub, Repo
from machine import Machine

QUIRE = BIN / "quire"
BYTES = random.Random(23).randbytes(24 << 20)  # six chunks
TINY = {"config.json": b"{}", "tokenizer.json": b"{}" * 400, "model.safetensors": BYTES[:9 << 20], "README.md": b"# Tiny",
        "pytorch_model.bin": b"pickled", "original/params.json": b"{}", "empty.txt": b"", "LICENSE": b"free"}


@pytest.fixture
def hub():
    with Hub({"org/tiny": Repo(TINY, {"model.safetensors"}),
              "org/large": Repo({"big.gguf": BYTES}, {"big.gguf"}),
              "org/gated": Repo({"a.gguf": b"gguf"}, gated=True),
              "org/several": Repo({f"m-{q}.gguf": q.encode() for q in ("Q4_0", "Q5_0")}),
              "org/quants": Repo({f"m-{q}.gguf": q.encode() for q in ("Q4_K_M", "Q8_0")}),
              "org/pickled": Repo({"config.json": b"{}", "pytorch_model.bin": b"x"})}, page=3) as hub:
        yield hub


@pytest.fixture
def machine(folder, hub):
    return Machine(folder, hub)


def tree_of(cache):
    """The files of the cache, each with its content, and where links lead."""
    tree = {}
    for path in sorted(cache.rglob("*")):
        name = str(path.relative_to(cache))
        if path.is_dir() or name.startswith((".locks", "CACHEDIR")) or "/trees/" in name or name.endswith(".lock"):
            continue
        tree[name] = (os.readlink(path) if path.is_symlink() else None, hashlib.sha256(path.read_bytes()).hexdigest())
    return tree


def hub_client(machine, cache, code, **env):
    ensure()
    done = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True, timeout=120,
                          env={**machine.env, "HF_HUB_CACHE": str(cache), "HF_HUB_DISABLE_XET": "1",
                               "HF_HUB_DISABLE_TELEMETRY": "1", **env})
    expect(done.returncode == 0, done.stderr[-3000:])
    return done.stdout.strip()


def test_the_hubs_own_client_and_quire_write_and_read_one_cache(machine, folder):
    ours = machine.pulled("hf:org/tiny")
    expect(sorted(p.name for p in ours.iterdir()) == ["LICENSE", "config.json", "empty.txt", "model.safetensors", "tokenizer.json"],
           list(ours.iterdir()))
    theirs = folder / "theirs"
    get = ("from huggingface_hub import snapshot_download; print(snapshot_download('org/tiny', allow_patterns=["
           "'config.json', 'tokenizer.json', 'model.safetensors', 'empty.txt', 'LICENSE']))")
    hub_client(machine, theirs, get)
    expect(tree_of(machine.cache) == tree_of(theirs), (tree_of(machine.cache), tree_of(theirs)))
    # Each reads what the other wrote, and fetches nothing.
    served = machine.hub.served_bytes
    expect(hub_client(machine, machine.cache, get, HF_HUB_OFFLINE="1") == str(ours), "their client reads ours")
    code, out, err = machine.quire("pull", "hf:org/tiny", env={"HF_HUB_CACHE": str(theirs)})
    expect(code == 0 and "nothing was left to fetch" in err and str(theirs) in out, (code, out, err))
    expect(machine.hub.served_bytes == served, "nothing is fetched twice")


def test_after_twenty_cuts_no_byte_was_fetched_twice(machine):
    places = sorted(random.Random(7).sample(range(1, len(BYTES)), 20))
    machine.hub.cuts = [b - a for a, b in zip([0, *places], places)]
    path = machine.pulled("hf:org/large")
    expect(path.read_bytes() == BYTES and not machine.parts(), "whole")
    expect(machine.hub.cuts == [] and machine.hub.served_bytes == len(BYTES), (machine.hub.cuts, machine.hub.served_bytes))


def test_a_killed_pull_goes_on_at_the_byte(machine):
    rest = threading_gate(machine.hub, 5 << 20)
    with Process(machine.command("pull", "hf:org/large"), env=machine.env) as pull:
        wait_until(lambda: machine.hub.served_bytes > 2 << 20, "bytes come")
        pull.signal(signal.SIGKILL)
        pull.wait()
    rest()
    here = bytes_in_parts(machine)
    expect(0 < here < len(BYTES), here)
    # What was under way when the process died was not taken.
    wait_until(lambda: quiet(machine.hub), "the hub has noticed")
    before = machine.hub.served_bytes
    expect(machine.pulled("hf:org/large").read_bytes() == BYTES, "whole")
    expect(machine.hub.served_bytes - before == len(BYTES) - here, (machine.hub.served_bytes, before, here))


def threading_gate(hub, most):
    """Lets so many bytes pass and holds the rest, until what it returns is called."""
    open_ = []

    def delay(count):
        with hub.lock:
            blocked = hub.served_bytes + count > most
        while blocked and not open_:
            time.sleep(0.01)

    hub.delay = delay

    def release():
        open_.append(True)
        hub.delay = None

    return release


def quiet(hub):
    before = hub.served_bytes
    time.sleep(0.2)
    return before == hub.served_bytes


def bytes_in_parts(machine):
    (path,) = (p for p in machine.parts() if p.suffix == ".map")
    counters = path.read_bytes()[256:]
    return sum(int.from_bytes(counters[i:i + 8], "little") for i in range(0, len(counters), 8))


def test_ctrl_c_stops_and_says_that_the_rest_can_follow(machine):
    release = threading_gate(machine.hub, 3 << 20)
    with Process(machine.command("pull", "hf:org/large"), env=machine.env) as pull:
        wait_until(lambda: machine.hub.served_bytes > 1 << 20, "bytes come")
        pull.signal(signal.SIGINT)
        code = pull.wait()
        release()
        expect(code == 130 and "the same command goes on" in pull.output(), (code, pull.output()))


def test_two_pulls_of_one_model_share_one(machine):
    release = threading_gate(machine.hub, 3 << 20)
    with Process(machine.command("pull", "hf:org/large"), env=machine.env) as first:
        wait_until(lambda: machine.hub.served_bytes > 1 << 20, "bytes come")
        with Process(machine.command("pull", "hf:org/large"), env=machine.env) as second:
            second.wait_for_line("another pull of hf:org/large is under way")
            release()
            expect((first.wait(), second.wait()) == (0, 0), (first.output(), second.output()))
            expect("nothing was left to fetch" in second.output(), second.output())
    expect(machine.hub.served_bytes == len(BYTES), machine.hub.served_bytes)


def test_a_server_without_ranges_a_busy_one_and_an_expired_address_are_lived_with(machine):
    hub = machine.hub
    hub.ranges = False
    expect(machine.pulled("hf:org/tiny").joinpath("model.safetensors").read_bytes() == TINY["model.safetensors"], "whole")
    hub.ranges, hub.busy, hub.expired = True, 3, 1
    expect(machine.pulled("hf:org/large", "--connections=2").read_bytes() == BYTES, "whole")
    expect(hub.busy == 0 and hub.expired == 0, "they were asked")
    # The account's token goes to the hub alone.
    machine.pulled("hf:org/tiny:v1", env={"HF_TOKEN": "the-token"})
    for name, _, path, headers in hub.requests:
        expect(name == "hub" or "Authorization" not in headers, (name, path))


def test_refusals_say_what_to_do(machine):
    machine.refused(1, "it is gated: accept its terms at", "pull", "hf:org/gated")
    machine.refused(1, "use an account's HF_TOKEN that may read it", "pull", "hf:org/gated", env={"HF_TOKEN": "wrong"})
    expect(machine.pulled("hf:org/gated", env={"HF_TOKEN": "the-token"}).read_bytes() == b"gguf", "with a token")
    machine.refused(3, "hf:org/absent: is not at", "pull", "hf:org/absent")
    machine.refused(3, "has no revision 'v9'; main is its default", "pull", "hf:org/tiny:v9")
    machine.refused(3, "has no file none.gguf; it has big.gguf", "pull", "hf:org/large/none.gguf")
    machine.refused(3, "has several .gguf files; name one, as hf:org/several/m-Q4_0.gguf", "pull", "hf:org/several")
    machine.refused(3, "pickled weights, which are never read", "pull", "hf:org/pickled")
    expect(machine.pulled("hf:org/quants").name == "m-Q4_K_M.gguf", "the usual one")
    machine.refused(2, "names no repository", "pull", "hf:org")
    machine.refused(2, "leads to one .gguf file", "pull", "https://127.0.0.1:1/x.zip")
    machine.refused(2, "HF_ENDPOINT", "pull", "hf:org/tiny", env={"HF_ENDPOINT": "ftp://x"})
    machine.refused(1, "Connection refused", "pull", "hf:org/tiny", env={"HF_ENDPOINT": f"http://127.0.0.1:{free_port()}"})
    machine.refused(1, "HF_HUB_OFFLINE keeps the hub out", "pull", "hf:org/tiny", env={"HF_HUB_OFFLINE": "1"})
    machine.refused(2, "--bandwidth: must be a size", "pull", "hf:org/tiny", "--bandwidth=fast")


def test_what_a_hostile_server_says_leaves_nothing_behind(machine):
    hub = machine.hub
    hub.damage = 5 << 20
    machine.refused(1, "that was promised; it is thrown away", "pull", "hf:org/large")
    expect(not machine.parts() and not list(machine.cache.rglob("*.gguf")), "nothing is kept of it")
    hub.damage, hub.busy = None, 10**6
    machine.refused(1, "the server answers with status 429", "pull", "hf:org/large")
    hub.busy, hub.short = 0, 100
    machine.refused(1, "closed the connection", "pull", "hf:org/tiny")
    hub.short = 0
    for location, mention in ((f"{hub.url}/org/large/resolve/main/big.gguf", "redirects"), ("file:///etc/passwd", "is no address")):
        hub.redirect_to = location
        machine.refused(1 if mention == "redirects" else 2, mention, "pull", "hf:org/large")
    hub.redirect_to = None
    good = {"type": "file", "path": "config.json", "size": 2, "oid": "0" * 40}
    for wrong, mention in (({"path": "../../evil.json"}, "leaves its folder"), ({"path": "/etc/x.json"}, "leaves its folder"),
                           ({"path": "a\nb.json"}, "characters"), ({"size": -1}, "size: must be"), ({"size": 1 << 50}, "size: must be"),
                           ({"oid": "../../../x"}, "is no digest"), ({"path": "a/" * 300 + "x"}, "too long"), ({"oid": None}, "oid")):
        hub.tree = [{**good, **wrong}]
        machine.refused(2, mention, "pull", "hf:org/tiny")
    hub.page, hub.tree = 20000, [{**good, "path": f"{i}.json"} for i in range(10001)]
    machine.refused(1, "more than 10,000 files", "pull", "hf:org/tiny")
    expect(not list(machine.home.rglob("evil*")), "nothing left its folder")


def test_a_web_address_and_a_bandwidth(machine):
    base = f"http://127.0.0.1:{machine.hub.servers['storage'].server_port}/org/large/big.gguf"
    digest = hashlib.sha256(BYTES).hexdigest()
    path = machine.pulled(f"{base}#sha256={digest}")
    expect(path == machine.home / ".cache/quire/models/big/big.gguf" and path.read_bytes() == BYTES, path)
    code, out, err = machine.quire("rm", "big")
    expect(code == 0 and out == "removed big, 25.2 MB\n" and not path.exists(), (code, out, err))
    machine.refused(1, "has the digest " + digest, "pull", f"{base}#sha256={'0' * 64}")
    machine.hub.repos["org/large"].files["big.gguf"] = BYTES[:1 << 20]
    begin = time.monotonic()
    machine.pulled(base, "--bandwidth=1MiB")
    expect(time.monotonic() - begin > 0.6, "a mebibyte takes most of a second, less the burst")


def test_two_addresses_of_one_name_do_not_mix(machine):
    base = f"http://127.0.0.1:{machine.hub.servers['storage'].server_port}/org"
    machine.hub.repos["org/other"] = Repo({"big.gguf": BYTES[:1000]})
    machine.pulled(f"{base}/large/big.gguf")
    machine.refused(1, "'big' is there already, from " + base, "pull", f"{base}/other/big.gguf")
    machine.quire("rm", "big")
    expect(machine.pulled(f"{base}/other/big.gguf").read_bytes() == BYTES[:1000], "the other")


def test_a_store_that_speaks_s3(machine, folder):
    ensure()
    for name, data in {**TINY, "many/page.json": b"{}"}.items():
        path = folder / "bucket" / "llm" / "tiny" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "bucket" / "big.gguf").write_bytes(BYTES)
    account = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret"}
    with Process([PYTHON, ROOT / "tests/supply/s3_server.py", folder / "bucket"], stdin=subprocess.PIPE) as server:
        port = int(server.wait_for_line("port ").split()[1])
        env = {**account, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        path = machine.pulled("s3://models/llm/tiny/", env=env)
        names = ["LICENSE", "config.json", "empty.txt", "model.safetensors", "tokenizer.json"]
        expect(sorted(p.name for p in path.iterdir() if not p.name.startswith(".")) == names, list(path.iterdir()))
        expect(all((path / name).read_bytes() == TINY[name] for name in names), "the same bytes")
        expect(machine.pulled("s3://models/big.gguf", env=env).read_bytes() == BYTES, "in parallel parts")
        code, out, err = machine.quire("pull", "s3://models/llm/tiny", env=env)
        expect(code == 0 and "nothing was left to fetch" in err, err)
        machine.refused(3, "there is nothing below this prefix", "pull", "s3://models/none", env=env)
        machine.refused(3, "there is no such bucket", "pull", "s3://absent/none", env=env)
        expect(re.search(r"^tiny +9\.4 MB", machine.quire("list")[1], re.M), "listed")
        expect(machine.quire("rm", "s3://models/llm/tiny")[0] == 0 and not path.exists(), "gone")


def test_list_show_copy_and_remove(machine):
    machine.pulled("hf:org/large")
    machine.pulled("hf:org/tiny")
    code, out, _ = machine.quire("list")
    expect(code == 0 and re.search(r"^hf:org/large/big\.gguf +25\.2 MB", out, re.M) and re.search(r"^hf:org/tiny +9\.4 MB", out, re.M), out)
    code, out, err = machine.quire("cp", "hf:org/large/big.gguf", "mine")
    expect(code == 0, err)
    copy = machine.home / ".cache/quire/models/mine/big.gguf"
    expect(copy.stat().st_nlink == 2 and not copy.is_symlink(), "both share their bytes")
    machine.refused(2, "there is a model 'mine' already", "cp", "hf:org/tiny", "mine")
    machine.refused(2, "NEW: a model's own name", "cp", "hf:org/tiny", "../evil")
    code, out, _ = machine.quire("rm", "hf:org/large/big.gguf")
    expect(code == 0 and not (machine.cache / "models--org--large").exists() and copy.read_bytes() == BYTES, out)
    machine.refused(3, "is not in", "rm", "hf:org/large/big.gguf")
    expect(machine.quire("rm", "mine")[0] == 0 and not copy.exists(), "gone")
    machine.refused(2, "was not pulled", "rm", "demo")
    expect(machine.quire("rm", "hf:org/tiny")[0] == 0 and not list(machine.cache.glob("models--*")), "gone")
    machine.refused(3, "fetches it", "show", "hf:org/tiny")


def test_a_pulled_model_runs_serves_and_shows(machine):
    files = {p.name: p.read_bytes() for p in DEMO.iterdir() if p.suffix in (".json", ".safetensors", ".jinja")}
    machine.hub.repos["org/demo"] = Repo(files, {"model.safetensors"})
    code, out, err = machine.quire("run", "org/demo", "Tell me a story", "--max-tokens=12", "--seed=1")
    expect(code == 0 and len(out.split()) > 5, (code, out, err))
    code, out, err = machine.quire("run", "hf:org/demo", "--max-tokens=4", stdin="Hello\nAnd then?\n")
    expect(code == 0 and len(out.strip().splitlines()) == 2, (code, out, err))
    code, out, err = machine.quire("show", "hf:org/demo")
    expect(code == 0 and "name         org/demo" in out and "family       " in out and "model.safetensors  5.8 MB" in out, (out, err))
    served = machine.hub.served_bytes
    # From here on the hub is not asked.
    with Process(machine.command("serve", "org/demo", "--port=0", "--grpc-port=0"),
                 env={**machine.env, "HF_HUB_OFFLINE": "1"}) as server:
        line = server.wait_for_line("ready: http://")
        expect(" serves org/demo" in line, line)
        url = line.split("ready: ")[1].split()[0]
        code, out, err = machine.quire("ps", f"--url={url}")
        expect(code == 0 and re.search(r"^org/demo +ready +[\d.]+ [KMG]iB +stays +1/1 +0 +0 +", out, re.M), (out, err))
    expect(machine.hub.served_bytes == served, "what is here is served from here")
    machine.refused(1, "Connection refused", "ps", f"--url=http://127.0.0.1:{free_port()}")


def test_the_catalogue_is_what_its_schema_says_and_names_lead_on(machine):
    text = (ROOT / "models" / "catalogue.json").read_text()
    catalogue = json.loads(text)
    jsonschema.validate(catalogue, json.loads((ROOT / "models" / "catalogue.schema.json").read_text()))
    names = [model["name"] for model in catalogue["models"]]
    expect(len(set(names)) == len(names), "no name twice")
    expect(all(model["memory_bytes"] > model["bytes"] for model in catalogue["models"]), "memory holds the weights and more")
    code, out, _ = machine.quire("pull")
    expect(code == 0 and all(re.search(rf"^{re.escape(name)} +.*needs about", out, re.M) for name in names), out)
    machine.refused(3, "'qwen3' has several sizes: qwen3:0.6b (640 MB, needs about", "serve", "qwen3")
    machine.refused(3, "nearest: qwen3:0.6b, ", "serve", "qwen3:0.5b")
    machine.refused(3, "is not on this machine; `quire pull qwen3:4b` fetches it", "show", "qwen3:4b")
    # A file of the user's own takes its place, without a release.
    own = machine.home / ".config" / "quire" / "catalogue.json"
    own.parent.mkdir(parents=True)
    model = {**catalogue["models"][0], "name": "mine:1b", "source": "hf:org/large/big.gguf"}
    own.write_text(json.dumps({"version": 1, "models": [model]}))
    code, out, err = machine.quire("pull", "mine:1b")
    expect(code == 0 and "licence" in err and out.strip().endswith("big.gguf"), (code, out, err))
    expect("mine:1b" in machine.quire("list")[1], "it is listed by its short name")
    for wrong, mention in (({"version": 2}, "version must be 1"), ({"models": [{**model, "source": "x"}]}, "models[0]: source"),
                           ({"models": [{**model, "bytes": 0}]}, "models[0]: bytes")):
        own.write_text(json.dumps({"version": 1, "models": [model], **wrong}))
        machine.refused(2, mention, "pull", "mine:1b")


SPARE = 64 << 20  # what a pull leaves free, as it looks at its start
FILLED_DISK = """
set -e
mount -t tmpfs -o size="$ROOM" none "$HOME"
"$@" > "$HOME/../out" 2> "$HOME/../err" & pull=$!
read -r word   # bytes have come
set +e
cat /dev/zero > "$HOME/fill" 2> /dev/null
echo full
wait "$pull"
echo "code $?"
rm "$HOME/fill"
read -r word   # the rest may come
"$@" > "$HOME/../path" && cmp "$(cat "$HOME/../path")" "$HOME/../whole" && echo equal
"""


def test_a_disk_that_fills_meanwhile_ends_in_one_line_and_the_rest_follows(folder, hub):
    """In a small file system of its own: what another program writes leaves no room for the second half of the file."""
    home = folder / "home"
    machine = Machine(home, hub)
    (folder / "whole").write_bytes(BYTES)
    release = threading_gate(hub, 5 << 20)
    room = {**machine.env, "ROOM": str(len(BYTES) + SPARE + (8 << 20))}
    script = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", FILLED_DISK, "sh", *machine.command("pull", "hf:org/large")]
    with subprocess.Popen(script, env=room, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        wait_until(lambda: hub.served_bytes > 2 << 20, "bytes come")
        shell.stdin.write("come\n")
        shell.stdin.flush()
        expect(shell.stdout.readline() == "full\n", "the disk is full")
        release()
        code = shell.stdout.readline()
        said = (folder / "err").read_text().strip().splitlines()[-1]
        expect(code == "code 1\n" and said.startswith("quire pull: ") and "No space left" in said, (code, said))
        shell.stdin.write("rest\n")
        shell.stdin.flush()
        expect(shell.stdout.readline() == "equal\n", (folder / "err").read_text())
