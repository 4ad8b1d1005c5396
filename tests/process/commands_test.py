"""Every command of quire as a user meets it: wrong flags, broken files, Ctrl-C, what it writes and how it ends."""
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import pty
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import xml.etree.ElementTree

from harness import BIN, DEMO, ROOT, Server, expect, run, wait_until

QUIRE = BIN / "quire"
MADE_UP = {("tiny-llama", "model.safetensors"): "62066c8f603a1f57", ("tiny-llama", "tokenizer.json"): "75942dec1455f7f8",
           ("tiny-qwen2", "model.safetensors"): "db150489bfa484ea", ("tiny-qwen2", "tokenizer.json"): "75942dec1455f7f8"}
MADE_UP_GGUF = "44139a4bb7bd7560"
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("QUIRE_", "OPENAI_"))}


def quire(*args, stdin=None, env=None, limit_s=120):
    """(code, standard output, standard error), without settings from this process's environment."""
    done = subprocess.run([str(a) for a in (QUIRE, *args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          input=stdin, timeout=limit_s, env={**CLEAN, **(env or {})}, text=True)
    return done.returncode, done.stdout, done.stderr


def commands():
    """The names that quire's own help lists."""
    code, out, _ = quire("help")
    names = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    expect(code == 0 and "serve" in names, out)
    return names


def test_every_command_refuses_an_unknown_flag_with_the_nearest_one():
    for name in commands():
        code, out, err = quire(name, "--hepl")
        expect((code, out) == (2, ""), (name, code, out, err))
        expect(len(err.splitlines()) == 1 and err.startswith(f"quire {name}: unknown flag --hepl; did you mean --help?"),
               (name, err))
        code, out, err = quire(name, "--help")
        expect(code == 0 and out.startswith(f"Usage: quire {name}") and not err, (name, code, err))
        code, out, err = quire("help", name)
        expect(code == 0 and out.startswith(f"Usage: quire {name}"), (name, code, err))
    code, _, err = quire("complet")
    expect(code == 2 and "did you mean complete?" in err, err)
    code, _, err = quire()
    expect(code == 2 and "Usage: quire COMMAND" in err, err)


def test_parse_takes_an_answer_apart_and_names_what_it_knows():
    raw = ("<think>\nhm\n</think>\n\nSure.\n<tool_call>\n<function=f>\n<parameter=n>\n1.50\n</parameter>\n<parameter=s>\n1\n</parameter>\n"
           "</function>\n</tool_call>")
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"n": {"type": "number"}, "s": {"type": "string"}}}}}]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tools.json"
        path.write_text(json.dumps(tools))
        said = set()
        for cut in ("1", "7", "random:3", "100000"):
            code, out, err = quire("parse", "--dialect", "qwen3_coder", "--tools", path, "--cut", cut, stdin=raw)
            expect((code, err) == (0, ""), (code, err))
            said.add(out)
        expect(said == {'{"content": "Sure.", "reasoning": "hm", "tool_calls": [{"name": "f", "arguments": {"n": 1.50, "s": "1"}}]}\n'}, said)
        path.write_text("{}")
        code, _, err = quire("parse", "--dialect", "hermes", "--tools", path, stdin="")
        expect(code == 2 and "tools: must be an array" in err, (code, err))
    code, out, _ = quire("parse", "--dialect", "hermes", stdin='<tool_call>{"name": "f", "arguments": {"a": 108.}}')
    expect(code == 0 and json.loads(out)["tool_calls"] == [{"name": "f", "arguments": '{"a": 108.}'}], out)
    code, out, _ = quire("parse", "--dialect", "hermes", "--reasoning-open", stdin="hm</think>yes")
    expect(json.loads(out) == {"content": "yes", "reasoning": "hm", "tool_calls": []}, out)
    for flags, mention in ((["--dialect", "klingon"], "--dialect: must be one of apriel, "), ([], "--dialect: must be one of apriel, "),
                           (["--dialect", "hermes", "--reasoning", "deep"], "--reasoning: must be one of cohere, deepseek_r1"),
                           (["--dialect", "hermes", "--cut", "0"], "--cut: must be a number"),
                           (["--dialect", "hermes", "--cut", "random:x"], "--cut: must be a number"),
                           (["--dialect", "hermes", "--tools", "/nowhere"], "--tools: /nowhere cannot be read")):
        code, out, err = quire("parse", *flags, stdin="x")
        expect(code == 2 and out == "" and mention in err and len(err.splitlines()) == 1, (flags, code, out, err))


def test_every_command_refuses_a_broken_file_with_its_line():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "quire.yaml"
        for text, mention in (("url: [", "quire.yaml:"), ("- a\n", "must be a map"), ("a\0b: 1", "quire.yaml"),
                              ("nonsense-key: 1\n", "quire.yaml:1: unknown key")):
            path.write_text(text)
            for name in commands():
                if name == "config":  # has nothing of its own to read: see below
                    continue
                argument = {"complete": ["x"], "run": ["x"], "show": ["x"], "rm": ["x"], "cp": ["x", "y"], "make-weights": ["tiny-llama", "/nowhere/at/all"], "quantize": ["x", "y"], "completion": ["bash"], "bench": ["serve"]}.get(name, [])
                code, _, err = quire(name, *argument, "--config", path)
                expect(code == 2 and mention in err and len(err.splitlines()) == 1, (name, text, code, err))
        path.write_text("prot: 1\n")
        code, _, err = quire("config", "show", "serve", "--config", path)
        expect(code == 2 and "quire.yaml:1: unknown key 'prot'; did you mean port?" in err, err)
        code, _, err = quire("serve", "--config", path.parent / "none.yaml")
        expect(code == 2 and "cannot be read" in err, err)


def settings(*args, env=None):
    code, out, err = quire("config", "show", "--json", *args, env=env)
    expect(code == 0, (args, code, err))
    return {s["name"]: s for s in json.loads(out)["settings"]}


def test_config_show_tells_where_each_value_came_from():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "quire.yaml"
        path.write_text("max-num-seqs: 7\nport: 1\nlog-level: debug\n")
        found = settings("serve", "demo", "--config", path, "--threads=3", env={"QUIRE_PORT": "9000"})
        expect(found["max-num-seqs"] == {"name": "max-num-seqs", "value": "7", "default": "64", "origin": "file",
                                         "where": f"{path}:1"}, found["max-num-seqs"])
        expect((found["port"]["value"], found["port"]["where"]) == ("9000", "QUIRE_PORT"), found["port"])
        expect((found["threads"]["origin"], found["threads"]["where"]) == ("flag", "--threads"), found["threads"])
        expect(found["grpc-port"]["origin"] == "default", found["grpc-port"])
    expect(settings("worker", "--model=m")["model"]["value"] == "m", "the worker is asked")
    expect(settings("quire-router", "--worker=a:1", "--worker=b:2")["worker"]["value"] == ["a:1", "b:2"], "a list")
    expect(settings("chat", "--seed=4")["seed"]["value"] == "4", "a command")
    code, out, err = quire("config", "show", "router", "--port=9")
    expect(code == 2 and "port" in out and "--worker is missing" in err, (code, out, err))
    code, out, _ = quire("config", "show", env={"QUIRE_API_KEY": "a-secret"})
    expect(code == 0 and out.splitlines()[0].split() == ["NAME", "VALUE", "ORIGIN", "WHERE"], out[:200])
    code, out, _ = quire("config", "show", "chat", env={"QUIRE_API_KEY": "a-secret"})
    expect("a-secret" not in out and "QUIRE_API_KEY" in out, out)
    for args, mention in ((("shw",), "did you mean show?"), (("show", "wroker"), "did you mean worker?"),
                          (("show", "--prot=1"), "did you mean --port?"), ((), "ACTION is missing")):
        code, _, err = quire("config", *args)
        expect(code == 2 and mention in err, (args, code, err))


def bash_completes(script, *words):
    """What bash offers for the last of `words`."""
    line = " ".join(words)
    code = (f"source {script}; COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; "
            f"COMP_LINE={line!r}; _quire; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    done = subprocess.run(["bash", "-euc", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**CLEAN, "PATH": f"{BIN}:{CLEAN['PATH']}"}, timeout=60)
    expect(done.returncode == 0, done.stdout)
    return done.stdout.split()


def test_completions_work_in_the_shells_they_are_for():
    with tempfile.TemporaryDirectory() as folder:
        scripts = {}
        for shell in ("bash", "zsh", "fish"):
            code, out, err = quire("completion", shell)
            expect(code == 0 and not err, (shell, err))
            scripts[shell] = pathlib.Path(folder) / f"_quire.{shell}"
            scripts[shell].write_text(out)
        bash = scripts["bash"]
        expect(set(commands()) <= set(bash_completes(bash, "quire", "")), "all commands")
        expect(bash_completes(bash, "quire", "comp") == ["complete", "completion"], "by their beginning")
        expect("--max-num-seqs" in bash_completes(bash, "quire", "serve", "--max-num"), "flags of the worker")
        expect("--no-metrics" in bash_completes(bash, "quire", "serve", "demo", "--no-m"), "a bool flag is switched off")
        expect(bash_completes(bash, "quire", "serve", "--log-level", "d") == ["debug"], "choices")
        expect(bash_completes(bash, "quire", "serve", "--log-level", "=", "d") == ["debug"], "behind =")
        expect("demo" in bash_completes(bash, "quire", "serve", "de"), "names of models")
        expect("--routing-policy" in bash_completes(bash, "quire-router", "--routing"), "the router by itself")
        expect(bash_completes(bash, "quire", "completion", "z") == ["zsh"], "arguments")
        code, out = run(["zsh", "-f", "-c", "autoload -Uz compinit && compinit -u -d $1/dump && source $2 && "
                         "(( $+functions[_quire] )) && echo ${_comps[quire]}", "zsh", folder, scripts["zsh"]])
        expect((code, out.strip()) == (0, "_quire"), (code, out))
        code, out = run(["fish", "--no-config", "-c", f"source {scripts['fish']}; complete -C 'quire serve --max-num'"])
        expect(code == 0 and "--max-num-seqs" in out, (code, out))
        code, out = run(["fish", "--no-config", "-c", f"source {scripts['fish']}; complete -C 'quire conf'"])
        expect(code == 0 and out.startswith("config"), (code, out))


def test_manual_pages_are_whole_and_without_a_warning():
    with tempfile.TemporaryDirectory() as folder:
        code, out, err = quire("man", "--folder", folder)
        expect(code == 0, err)
        pages = sorted((pathlib.Path(folder) / "man1").iterdir())
        names = {p.name for p in pages}
        expect(names == {"quire.1", "quire-router.1", "quire-worker.1"} | {f"quire-{c}.1" for c in commands()}, names)
        for page in pages:
            done = subprocess.run(["groff", "-man", "-Tutf8", "-P-cbou", "-ww", str(page)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=60)
            expect(done.returncode == 0 and not done.stderr, (page.name, done.stderr[:500]))
            expect("EXIT STATUS" in done.stdout, page.name)
        code, out, _ = quire("man", "worker")
        expect(code == 0 and out == (pathlib.Path(folder) / "man1" / "quire-worker.1").read_text(), "one page")
        code, _, err = quire("man", "srve")
        expect(code == 2 and "did you mean serve?" in err, err)
        file = pathlib.Path(folder) / "file"
        file.write_text("")
        code, _, err = quire("man", "--folder", file)
        expect(code == 1 and "cannot be made" in err, err)


def test_the_reference_is_what_the_programs_say():
    code, out, err = quire("man", "--markdown")
    expect(code == 0, err)
    expect((ROOT / "docs" / "reference" / "cli.md").read_text() == out,
           "docs/reference/cli.md is not what the programs say: build/bin/quire man --markdown > docs/reference/cli.md")


def test_plan_tells_what_fits_and_what_would():
    code, out, err = quire("plan", "demo")
    expect(code == 0 and not err, err)
    for part in ("weights", "workspace", "kv cache", "free", "sequences", "largest", "quire serve demo"):
        expect(part in out, (part, out))
    code, out, err = quire("plan", DEMO, "--json", "--memory=64MiB", "--bandwidth=100GB", "--threads=1")
    plan = json.loads(out)
    parts = ("weight_bytes", "workspace_bytes", "draft_bytes", "kv_bytes", "constraint_bytes", "free_bytes")
    expect(sum(plan[p] for p in parts) == plan["usable_bytes"] == 64 << 20 and plan["draft_bytes"] == 0, plan)
    expect(plan["read_bytes_per_second"] == 100e9 and not plan["bandwidth_is_measured"], plan)
    # What it says fits is what a worker takes; one token more is refused.
    largest = plan["largest_context"]
    code, out, err = quire("plan", DEMO, "--json", "--memory=64MiB", "--threads=1", f"--max-model-len={largest}")
    expect(code == 0 and json.loads(out)["max_model_len"] == largest, err)
    drafts = json.dumps({"method": "draft_model", "model": "demo", "num_speculative_tokens": 4})
    code, out, err = quire("plan", DEMO, "--json", "--memory=64MiB", "--bandwidth=100GB", "--threads=1", f"--speculative-config={drafts}")
    expect(code == 0, err)
    both = json.loads(out)
    shown = quire("plan", DEMO, "--enable-lora", f"--speculative-config={drafts}")[1]
    expect("adapters" in shown and "what drafts, and its pages" in shown, shown)
    expect(sum(both[p] for p in parts) == 64 << 20, both)
    expect(both["draft_bytes"] == both["weight_bytes"] + both["workspace_bytes"] + both["kv_bytes"], f"the same model twice: {both}")
    for model, what in (("/nope", "no such model"), (str(DEMO / "README.md"), "GGUF")):
        drafts = json.dumps({"method": "draft_model", "model": model, "num_speculative_tokens": 4})
        code, out, err = quire("plan", DEMO, f"--speculative-config={drafts}")
        expect(code == 3 and what in err and "--speculative-config: model" in err and len(err.splitlines()) == 1, (code, err))
    with tempfile.TemporaryDirectory() as folder:
        other = pathlib.Path(folder) / "other"
        shutil.copytree(DEMO, other)
        tokenizer = json.loads((other / "tokenizer.json").read_text())
        vocabulary = tokenizer["model"]["vocab"]
        one, two = sorted(vocabulary, key=vocabulary.get)[-2:]
        vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
        (other / "tokenizer.json").write_text(json.dumps(tokenizer))
        drafts = json.dumps({"method": "draft_model", "model": str(other), "num_speculative_tokens": 4})
        code, out, err = quire("plan", DEMO, f"--speculative-config={drafts}")
        expect(code == 3 and "another vocabulary: token 2046" in err and len(err.splitlines()) == 1, (code, err))
    # Pages by type: fp8 has a byte for each element and four for each token and head of K and of V.
    plans = {}
    for dtype in ("auto", "float32", "bfloat16", "float16", "fp8"):
        code, out, err = quire("plan", DEMO, "--json", "--memory=64MiB", "--threads=1", "--bandwidth=100GB",
                               f"--kv-cache-dtype={dtype}")
        plans[dtype] = json.loads(out)
        expect(code == 0 and plans[dtype]["kv_cache_dtype"] == dtype.replace("auto", "float32"), (dtype, err))
    pages = [plans[dtype]["page_bytes"] for dtype in ("auto", "float32", "bfloat16", "float16", "fp8")]
    expect(pages[0] == pages[1] == 2 * pages[2] == 2 * pages[3] and pages[1] / 4 < pages[4] < pages[1] / 2, pages)
    numerics = {plan["numerics"] for plan in plans.values()}
    expect(len(numerics) == 4, f"each type is a numerics class of its own: {numerics}")
    # Weights by type, converted when they are loaded.
    plans = {}
    for dtype in ("auto", "float32", "float16", "bfloat16"):
        code, out, err = quire("plan", DEMO, "--json", "--memory=64MiB", "--threads=1", "--bandwidth=100GB", f"--dtype={dtype}")
        expect(code == 0, (dtype, err))
        plans[dtype] = json.loads(out)
    sizes = [plans[dtype]["weight_bytes"] for dtype in ("float32", "float16", "bfloat16")]
    expect(sizes[1] == sizes[2] and 1.8 * sizes[1] < sizes[0] < 2.2 * sizes[1], sizes)
    numerics = [plan["numerics"] for plan in plans.values()]
    expect(len(set(numerics)) == 3, f"auto is one of them: {numerics}")
    code, out, err = quire("plan", DEMO, "--dtype=float32", "--device=cuda")
    expect(code == 2 and "--dtype" in err and len(err.splitlines()) == 1, (code, err))
    plans["auto"] = json.loads(quire("plan", DEMO, "--json", "--memory=64MiB", "--threads=1", "--bandwidth=100GB")[1])
    # A switch goes to the worker, either way round; on a CPU this one changes nothing.
    invariant, variant = (json.loads(quire("plan", DEMO, "--json", "--memory=64MiB", "--threads=1", "--bandwidth=100GB",
                                           flag)[1]) for flag in ("--batch-invariant", "--no-batch-invariant"))
    expect(invariant == variant == plans["auto"], (invariant, variant))
    code, out, err = quire("plan", DEMO, "--memory=1MiB")
    expect(code == 3 and "no setting fits" in err and len(err.splitlines()) == 1, (code, err))
    for args, wanted, mention in ((["/nowhere"], 3, "/nowhere"), (["demo", "--memory=lots"], 2, "lots"),
                                  (["demo", "--block-size=7"], 2, "--block-size"),
                                  (["demo", "--max-modle-len=9"], 2, "did you mean --max-model-len?"),
                                  (["demo", "--kv-cache-dtype=int8"], 2, "--kv-cache-dtype"),
                                  (["demo", "--dequantize-weights", "--device=cpu"], 2, "--dequantize-weights"),
                                  (["demo", "--workers=0"], 2, "--workers")):
        code, out, err = quire("plan", *args)
        expect(code == wanted and mention in err and len(err.splitlines()) == 1, (args, code, err))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(DEMO, pathlib.Path(folder) / "broken")
        (pathlib.Path(folder) / "broken" / "config.json").write_text("{")
        code, out, err = quire("plan", pathlib.Path(folder) / "broken")
        expect(code == 3 and "config.json" in err and len(err.splitlines()) == 1, (code, err))


def quantise_one(folder, scale):
    """The demo in `folder` with one matrix in int8 under `scale`, as compressed-tensors stores it."""
    shutil.copytree(DEMO, folder)
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    name = "model.layers.0.self_attn.k_proj"
    tensors = {}
    for key, entry in header.items():
        if key != "__metadata__":
            tensors[key] = entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])]
    _, (rows, cols), codes = tensors.pop(f"{name}.weight")
    tensors[f"{name}.weight"] = "I8", [rows, cols], codes[1::2]
    tensors[f"{name}.weight_scale"] = "F32", [rows, 1], struct.pack("<f", scale) * rows
    header, body = {}, b""
    for key, (kind, shape, content) in tensors.items():
        header[key] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["re:.*q_proj"], "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
                        "input_activations": {"num_bits": 8, "type": "int", "dynamic": True}}}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_quantised_checkpoint_is_named_served_and_refused_where_it_is_damaged():
    told = ("compressed-tensors, 8 bits by row, weights only (dynamic int8 activations are not applied); "
            "matrices that stay quantised: 1")
    with tempfile.TemporaryDirectory() as name:
        model = quantise_one(pathlib.Path(name) / "quantised", 0.001)
        code, out, err = quire("plan", model, "--json", "--memory=64MiB", "--threads=1", "--bandwidth=100GB")
        plan = json.loads(out)
        expect(code == 0 and plan["quantisation"] == told, (code, out, err))
        plain = json.loads(quire("plan", DEMO, "--json", "--memory=64MiB", "--threads=1", "--bandwidth=100GB")[1])
        expect("quantisation" not in plain and plan["model_id"] != plain["model_id"], plain)
        # 128 rows of 256: from two bytes each to 37 for 32.
        expect(plain["weight_bytes"] - plan["weight_bytes"] == 128 * 256 * 2 - 128 * 8 * 37, (plan, plain))
        code, out, err = quire("plan", model, "--memory=64MiB", "--threads=1", "--bandwidth=100GB")
        expect(code == 0 and told in out, (code, out, err))
        code, out, err = quire("plan", model, "--activation-dtype=w8a8", "--json", "--memory=64MiB", "--threads=1",
                               "--bandwidth=100GB")
        rounding = json.loads(out)
        expect(rounding["quantisation"].startswith("compressed-tensors, 8 bits by row, activations int8 per token; "), out)
        expect("w8a8" in rounding["numerics"] and rounding["model_id"] == plan["model_id"], out)
        code, out, err = quire("plan", DEMO, "--activation-dtype=w8a8", "--memory=64MiB", "--threads=1", "--bandwidth=100GB")
        expect(code == 3 and len(err.splitlines()) == 1 and "asks for none; use --activation-dtype auto" in err, (code, err))
        with Server("--threads=1", model=model) as server:
            status, answer = server.post("/v1/completions", {"model": "quantised", "prompt": "Once", "max_tokens": 8,
                                                             "ignore_eos": True, "temperature": 0})
            expect(status == 200 and answer["usage"]["completion_tokens"] == 8, (status, answer))
        damaged = quantise_one(pathlib.Path(name) / "damaged", float("nan"))
        done = subprocess.run([BIN / "quire-worker", f"--model={damaged}", "--listen=127.0.0.1:0", "--http-port=0",
                               "--threads=1", "--log-level=error"], capture_output=True, text=True, timeout=60, env=CLEAN)
        lines = [line for line in done.stderr.splitlines() if line.startswith("quire-worker:")]
        expect(done.returncode == 3 and len(lines) == 1, (done.returncode, done.stderr))
        expect("k_proj.weight_scale\" holds nan as the scale of row 0, group 0" in lines[0], lines)


def test_the_types_of_a_gguf_are_named():
    told = "GGUF: Q4_0 12 matrices (221184 bytes), Q4_K 4 matrices (73728 bytes), F32 vectors (2688 bytes)"
    arguments = ["--memory=64MiB", "--threads=1", "--bandwidth=100GB"]
    with tempfile.TemporaryDirectory() as name:
        code, _, err = quire("make-weights", "tiny-llama", pathlib.Path(name) / "made", "--dtype=q4_k")
        expect(code == 0, (code, err))
        model = pathlib.Path(name) / "made" / "model.gguf"
        code, out, err = quire("plan", model, "--json", *arguments)
        expect(code == 0 and json.loads(out)["quantisation"] == told, (code, out, err))
        code, out, err = quire("plan", model, *arguments)
        expect(code == 0 and told in out, (code, out, err))
        code, out, err = quire("doctor", model)
        expect(f"({told})" in out, (code, out, err))


def test_doctor_says_what_is_wrong_and_what_to_do():
    with socket.socket() as taken, socket.socket() as free:
        for one in (taken, free):
            one.bind(("127.0.0.1", 0))
        taken.listen()
        busy, idle = taken.getsockname()[1], free.getsockname()[1]
        free.close()
        code, out, err = quire("doctor", f"--port={idle}", f"--grpc-port={idle}", f"--worker=127.0.0.1:{busy}")
        expect(code == 0 and not err, (code, out, err))
        for subject in ("programs", "processor", "cpus", "memory", "open files", "port", "model", "peer"):
            expect(subject in out, (subject, out))
        code, out, err = quire("doctor", "--json", f"--port={busy}", f"--grpc-port={idle}", "--worker=127.0.0.1:1",
                               "--url=http://127.0.0.1:1")
        found = json.loads(out)
        bad = {f["subject"]: f for f in found["findings"] if f["verdict"] == "bad"}
        expect(code == 1 and not found["good"] and set(bad) == {"port", "peer", "server"}, (code, found))
        expect(all(f["remedy"] for f in bad.values()), bad)
        code, out, err = quire("doctor", "/nowhere", f"--port={idle}", f"--grpc-port={idle}")
        expect(code == 1 and "/nowhere" in out, (code, out))
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(DEMO, pathlib.Path(folder) / "broken")
            (pathlib.Path(folder) / "broken" / "tokenizer.json").write_text("{")
            code, out, err = quire("doctor", pathlib.Path(folder) / "broken", f"--port={idle}", f"--grpc-port={idle}")
            expect(code == 1 and "tokenizer.json" in out and not err, (code, out, err))


@contextlib.contextmanager
def router_with_admin(folder):
    """A served demo whose router has an admin port: (server, its url flag, flags for the admin port)."""
    token = pathlib.Path(folder) / "token"
    token.write_text("operator-token-of-the-test\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Server(f"--admin-port={port}", f"--admin-token-file={token}", f"--request-log={folder}/books.jsonl") as server:
        yield server, f"--url=http://127.0.0.1:{server.port}", [f"--admin-url=http://127.0.0.1:{port}",
                                                                f"--admin-token-file={token}"]


def test_top_and_trace_tell_what_a_server_does():
    with tempfile.TemporaryDirectory() as folder, router_with_admin(folder) as (server, url, admin):
        connection = server.connection()
        connection.request("POST", "/v1/completions", json.dumps(
            {"model": "demo", "prompt": "Once upon a time", "max_tokens": 20, "ignore_eos": True}),
            {"Content-Type": "application/json", "x-request-id": "one.request-7"})
        expect(connection.getresponse().read(), "an answer")
        server.wait_until(lambda: "quire_router_worker_ready{" in server.get("/metrics")[1], "the worker is counted")
        code, out, err = quire("top", url, "--interval=100ms")
        expect(code == 0 and not err and "0 live" in out and "ready" in out and "ENGINE" in out, (code, out, err))
        code, out, err = quire("top", url, *admin, "--interval=100ms", "--count=2")
        expect(code == 0 and out.count("WORKER") == 2 and "exact" in out and "\x1b" not in out, (code, out, err))
        code, out, err = quire("trace", "one.request-7", *admin)
        for part in ("one.request-7, ended: finished", "arrived", "attempt 1 sent to", "first output", "20 out"):
            expect(code == 0 and part in out, (part, out, err))
        books = pathlib.Path(folder) / "books.jsonl"
        code, out, err = quire("trace", "one.request-7", *admin, f"--worker-log={books}")
        expect(code == 0 and "at its workers" in out and "20 generated; length" in out, (code, out, err))
        code, out, err = quire("trace", "one.request-7", *admin, f"--worker-log={folder}/nothing")
        expect(code == 1 and "--worker-log" in err and len(err.splitlines()) == 1, (code, out, err))
        code, out, err = quire("trace", *admin)
        expect(code == 0 and "one.request-7" in out and "finished" in out, (out, err))
        # Without keys on loopback the port for clients answers too.
        code, out, err = quire("trace", "one.request-7", f"--admin-url=http://127.0.0.1:{server.port}")
        expect(code == 0 and "one.request-7, ended: finished" in out, (code, out, err))
        code, out, err = quire("trace", "one.request-7", "--json", *admin)
        expect(code == 0 and json.loads(out)["prompt_tokens"] > 0, (out, err))
        wrong, empty = pathlib.Path(folder) / "wrong", pathlib.Path(folder) / "empty"
        wrong.write_text("another-token\n")
        empty.write_text("\n")
        for command, wanted, mention in (
                (["trace", "nobody", *admin], 1, "no request of this id"),
                (["trace", "one.request-8", f"--admin-url=http://127.0.0.1:{server.port}"], 1, "no request of this id"),
                (["trace", "x", admin[0]], 2, "--admin-token-file is missing"),
                (["trace", "x", admin[0], f"--admin-token-file={empty}"], 2, "is empty"),
                (["trace", "x", admin[0], f"--admin-token-file={wrong}"], 2, "--admin-url"),
                (["trace", "x", "--admin-url=http://127.0.0.1:1", admin[1]], 1, "127.0.0.1:1"),
                (["trace", "x" * 1000, *admin], 2, "ID: must be"),
                (["top", "--url=http://127.0.0.1:1"], 1, "127.0.0.1:1"),
                (["top", url, admin[0], f"--admin-token-file={wrong}"], 2, "--admin-url"),
                (["top", url, "--interval=1us"], 2, "--interval")):
            code, out, err = quire(*command)
            expect(code == wanted and mention in err and len(err.splitlines()) == 1, (command, code, err))
        # On a terminal it goes on until Ctrl-C, and gives the screen back.
        master, slave = pty.openpty()
        child = subprocess.Popen([str(QUIRE), "top", url, "--interval=100ms"], stdout=slave, stderr=slave, env=CLEAN,
                                 start_new_session=True)
        os.close(slave)
        seen = b""
        while seen.count(b"Ctrl-C leaves") < 3:
            seen += os.read(master, 4096)
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the terminal's other end is closed when the child ends
            while more := os.read(master, 4096):
                seen += more
        os.close(master)
        expect(child.wait(timeout=60) == 0 and seen.endswith(b"\x1b[?25h\x1b[?1049l"), seen[-80:])


HOSTILE = "a\x1b]52;c;aGk=\x07b\u009b31m\u202ec\x7f\n"


class HostileServer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer("application/json", json.dumps({"object": "list", "data": [{"id": HOSTILE, "object": "model"}]}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["model"] == "refused":
            return self.answer("application/json", json.dumps({"error": {"message": HOSTILE}}), 400)
        choice = {"text": HOSTILE, "delta": {"content": HOSTILE}}
        return self.answer("text/event-stream", f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n")

    def answer(self, kind, text, status=200):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))

    def log_message(self, *_):
        pass


def on_a_terminal(*args, stdin=b""):
    """What a command writes to a terminal, which makes \\r\\n of \\n."""
    master, slave = pty.openpty()
    child = subprocess.Popen([str(a) for a in (QUIRE, *args)], stdin=subprocess.PIPE, stdout=slave, stderr=slave, env=CLEAN)
    os.close(slave)
    child.stdin.write(stdin)
    child.stdin.close()
    seen = b""
    with contextlib.suppress(OSError):
        while more := os.read(master, 4096):
            seen += more
    os.close(master)
    child.wait(timeout=60)
    return seen.decode().replace("\r\n", "\n")


def test_no_text_of_a_server_commands_the_terminal():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), HostileServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"--url=http://127.0.0.1:{server.server_address[1]}"
        shown = "a?]52;c;aGk=?b?31m?c?"
        for command in (["complete", "x", "--model=m", url], ["models", url], ["complete", "x", "--model=refused", url]):
            seen = on_a_terminal(*command)
            expect(shown in seen and all(c.isprintable() or c in "\n\t" for c in seen), (command, seen))
        seen = on_a_terminal("chat", url, stdin=b"hello\n")
        expect(shown in seen and all(c.isprintable() or c in "\n\t" for c in seen), seen)
        # What is piped on is what the server sent.
        code, out, err = quire("complete", "x", "--model=m", url)
        expect(code == 0 and out == HOSTILE + "\n", (code, out, err))
        server.shutdown()


def test_bench_serve_speaks_vllms_language():
    with Server() as server, tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        url = f"--base-url=http://127.0.0.1:{server.port}"
        common = ["bench", "serve", url, "--num-prompts", 12, "--random-input-len", 32, "--random-output-len", 8,
                  "--ignore-eos", "--seed", 3]
        code, out, err = quire(*common, "--max-concurrency", 4, "--goodput", "ttft:60000", "e2el:0", "--save-detailed",
                               "--plot-timeline", "--result-dir", folder, "--result-filename", "r.json",
                               "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99.9",
                               "--num-warmups", 1, "--ready-check-timeout-sec", 60)
        expect(code == 0 and not err, (code, out, err))
        report = dict(line.split(":", 1) for line in out.splitlines() if ":" in line)
        number = {k: v.strip() for k, v in report.items()}
        expect((number["Successful requests"], number["Failed requests"]) == ("12", "0"), out)
        expect(number["Total input tokens"] == str(12 * 32), "prompts are as long as asked, to the token: " + out)
        expect(number["Total generated tokens"] == str(12 * 8), out)
        expect(number["Request goodput (req/s)"] == "0.00" and float(number["P99.9 E2EL (ms)"]) > 0, out)
        result = json.loads((folder / "r.json").read_text())
        expect(result["completed"] == 12 and result["input_lens"] == [32] * 12 and len(result["ttfts"]) == 12, result)
        expect(result["p99.9_itl_ms"] >= result["p50_itl_ms"] and result["max_concurrent_requests"] <= 4, result)
        svg = xml.etree.ElementTree.fromstring((folder / "r.svg").read_text())
        expect(len(svg.findall(".//{*}path[@class='line']")) == 4, "four panels")
        again = quire(*common, "--save-result", "--append-result", "--result-dir", folder, "--result-filename", "r.json",
                      "--request-rate", 200, "--burstiness", 0.5, "--dataset-name", "prefix_repetition",
                      "--prefix-repetition-prefix-len", 40, "--prefix-repetition-suffix-len", 4,
                      "--prefix-repetition-output-len", 4)
        expect(again[0] == 0 and len((folder / "r.json").read_text().splitlines()) == 2, again)
        lines = folder / "prompts.jsonl"
        lines.write_text('{"prompt": "Once upon"}\n{"prompt": "A fox", "output_tokens": 5}\n')
        code, out, err = quire("bench", "serve", url, "--dataset-name=custom", f"--dataset-path={lines}",
                               "--num-prompts=4", "--backend=openai-chat", "--custom-output-len=6", "--temperature=0",
                               "--extra-body", '{"ignore_eos": true}', "--ramp-up-strategy=linear",
                               "--ramp-up-start-rps=50", "--ramp-up-end-rps=100")
        expect(code == 0 and "Total generated tokens:                  24" in out, (code, out, err))
        lines.write_text("no json\n")
        for args, wanted, mention in (
                (["--request-rate=0"], 2, "--request-rate"), (["--request-rate=fast"], 2, "or inf"),
                (["--goodput", "itl:5"], 2, "ttft:MS"), (["--goodput"], 2, "--goodput"),
                (["--metric-percentiles=101"], 2, "[0, 100]"), (["--percentile-metrics=ttf"], 2, "ttft"),
                (["--extra-body=[1]"], 2, "--extra-body"), (["--num-prompts=0"], 2, "--num-prompts"),
                (["--dataset-name=sharegpt"], 2, "--dataset-path is missing"),
                (["--dataset-name=custom", f"--dataset-path={lines}"], 2, "line 1"),
                (["--dataset-name=custom", "--dataset-path=/nowhere"], 2, "/nowhere"),
                (["--ramp-up-strategy=linear"], 2, "--ramp-up-start-rps"),
                (["--num-promts=1"], 2, "did you mean --num-prompts?"), (["--model=nobody", "--num-prompts=1"], 1, "nobody"),
                (["--result-dir", lines, "--save-result", "--num-prompts=1"], 1, "cannot be written")):
            code, out, err = quire("bench", "serve", url, "--random-input-len=8", "--random-output-len=2", *args)
            expect(code == wanted and mention in err and len(err.splitlines()) <= 2, (args, code, err))
        code, out, err = quire("bench", "srve")
        expect(code == 2 and "did you mean serve?" in err, err)
        code, out, err = quire("bench", "serve", "--base-url=http://127.0.0.1:1", "--model=m", "--num-prompts=2")
        expect(code == 1 and "Failed requests:                         2" in out and "127.0.0.1:1" in err, (out, err))
        # Ctrl-C: what came so far is told, and the server has nothing left of it.
        child = subprocess.Popen([str(a) for a in (QUIRE, *common, "--num-prompts=500", "--random-output-len=1500",
                                                   "--max-concurrency=4")], stdout=subprocess.PIPE, env=CLEAN,
                                 start_new_session=True, text=True)
        server.wait_until(lambda: "quire_router_live_requests 4" in server.get("/metrics")[1], "it is under way")
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
        expect(child.returncode == 130 and "Serving Benchmark Result" in out, (child.returncode, out))
        server.wait_until(lambda: "quire_router_live_requests 0" in server.get("/metrics")[1], "nothing runs on")


def widen_vocabulary(folder, ids):
    """Gives a made-up model zeros for the rows of further ids."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    head, body = json.loads(data[8:8 + size]), data[8 + size:]
    tensors, at = {name: body[slice(*one["data_offsets"])] for name, one in head.items() if name != "__metadata__"}, 0
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        rows, width = head[name]["shape"]
        tensors[name] += bytes((ids - rows) * width * 2)
        head[name]["shape"][0] = ids
    for name, values in tensors.items():
        head[name]["data_offsets"] = [at, at + len(values)]
        at += len(values)
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(tensors.values()))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": ids}))


def test_where_memory_is_short_the_plan_leaves_out_what_only_saves_time():
    """The int8 copy of a head goes before the model does: with the least memory that serves it at all, the weights are smaller."""
    with tempfile.TemporaryDirectory() as name:
        model = pathlib.Path(name) / "wide"
        expect(quire("make-weights", "tiny-llama", model)[0] == 0, "written")
        widen_vocabulary(model, 65_536)

        def weights(mib):
            done = subprocess.run([BIN / "quire-worker", "--plan", "--plan-bandwidth=1B", "--log-level=error", f"--model={model}",
                                   f"--plan-memory={mib}MiB", "--max-model-len=2048"], capture_output=True, text=True)
            return json.loads(done.stdout)["weight_bytes"] if done.returncode == 0 else None
        ample, least, fits = weights(16_384), 1, 16_384
        while least < fits:
            middle = (least + fits) // 2
            least, fits = (least, middle) if weights(middle) else (middle + 1, fits)
        copy = 65_536 * (128 * 34 // 32 + 8)
        expect(ample - weights(fits) == copy, (ample, weights(fits), copy, fits))


def test_made_up_weights_are_the_same_everywhere_and_serve():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        digests = {}
        for shape, args in (("tiny-llama", []), ("tiny-qwen2", ["--dtype=f16", "--seed=7"])):
            code, out, err = quire("make-weights", shape, folder / shape, *args)
            expect(code == 0 and not err and "quire serve" in out, (code, out, err))
            for file in ("model.safetensors", "tokenizer.json"):
                digests[shape, file] = hashlib.sha256((folder / shape / file).read_bytes()).hexdigest()[:16]
        # Recorded: a seed is a promise of these bytes, and fixtures elsewhere may be named by it.
        expect(digests == MADE_UP, digests)
        for shape in ("tiny-llama", "tiny-qwen2"):
            with Server("--threads=1", model=folder / shape) as server:
                status, answer = server.post("/v1/completions", {"model": shape, "prompt": "Once", "max_tokens": 8,
                                                                 "ignore_eos": True, "temperature": 0})
                expect(status == 200 and answer["usage"]["completion_tokens"] == 8, (status, answer))
                expect(answer["usage"]["prompt_tokens"] == 4, "a token for each byte")
                status, answer = server.post("/v1/chat/completions", {"model": shape, "max_tokens": 4, "messages": [
                    {"role": "user", "content": "Hello"}]})
                expect(status == 200, (status, answer))
        # GGUF: its tokenizer is in the file, and its scaled frequencies.
        code, out, err = quire("make-weights", "tiny-llama", folder / "quants", "--dtype=q4_k")
        gguf = folder / "quants/model.gguf"
        expect(code == 0 and f"quire serve {gguf}" in out and [gguf] == list(gguf.parent.iterdir()), (code, out, err))
        digest = hashlib.sha256(gguf.read_bytes()).hexdigest()[:16]
        expect(digest == MADE_UP_GGUF, digest)
        with Server("--threads=1", "--served-model-name=quants", model=gguf) as server:
            status, answer = server.post("/v1/completions", {"model": "quants", "prompt": "Once", "max_tokens": 8,
                                                             "ignore_eos": True, "temperature": 0})
            expect(status == 200 and answer["usage"]["completion_tokens"] == 8, (status, answer))
            expect(answer["usage"]["prompt_tokens"] == 4, "a token for each byte")
        full = folder / "tiny-llama"
        for args, wanted, mention in (
                (("tiny-llama", full), 2, "give a new folder"), (("tiny-lama", folder / "x"), 2, "tiny-llama"),
                (("tiny-llama",), 2, "DIR is missing"), (("tiny-llama", folder / "x", "--layers=3"), 2, "has 2 layers"),
                (("tiny-llama", folder / "x", "--dtype=int4"), 2, "bf16"),
                (("tiny-llama", folder / "x", "--seed=-1"), 2, "--seed"),
                (("tiny-llama", full / "config.json"), 2, "cannot be made")):
            code, out, err = quire("make-weights", *args)
            expect(code == wanted and mention in err and len(err.splitlines()) == 1, (args, code, err))
            expect(not (folder / "x").exists(), args)
        # Ctrl-C: nothing stands there that a server would take for a model.
        child = subprocess.Popen([str(QUIRE), "make-weights", "Llama-3.1-8B", str(folder / "large"), "--dtype=f32",
                                  "--layers=2"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=CLEAN, text=True)
        wait_until(lambda: any((folder / "large").glob("*.safetensors")), "it is under way")
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
        expect(child.returncode == 130 and "interrupted" in err, (child.returncode, err))
        expect(not (folder / "large").exists(), list(folder.iterdir()))


def test_made_up_weights_of_newer_families_have_the_tensors_that_they_need():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for shape, layers, family in (("Qwen3-30B-A3B", 1, "qwen3_moe"), ("Qwen3.5-4B", 4, "qwen3_5"),
                                      ("DeepSeek-V2-Lite", 2, "deepseek_v3")):
            code, out, err = quire("make-weights", shape, folder / shape, "--dtype=q4_k", f"--layers={layers}", "--vocabulary=512")
            expect(code == 0 and not err, (code, out, err))
            done = subprocess.run([BIN / "quire-worker", "--plan", "--plan-bandwidth=1B", "--log-level=error", "--max-model-len=64",
                                   f"--model={folder / shape / 'model.gguf'}"], capture_output=True, text=True)
            expect(done.returncode == 0 and json.loads(done.stdout)["family"] == family, (shape, done.stdout, done.stderr))
            (folder / shape / "model.gguf").unlink()
        for args, mention in (((), "alone: give q4_k or gguf_f16, not bf16"),
                              (("--dtype=q4_k", "--vocabulary=258"), "needs at least 259 ids, not 258")):
            code, out, err = quire("make-weights", "Qwen3-30B-A3B", folder / "x", *args)
            expect(code == 2 and mention in err and len(err.splitlines()) == 1, (args, code, err))
            expect(not (folder / "x").exists(), args)


def test_interrupts_end_what_waits_and_leave_nothing_running():
    with socket.socket() as deaf:  # takes connections and says nothing
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        url = f"--url=http://127.0.0.1:{deaf.getsockname()[1]}"
        for command in (["complete", "x", url], ["models", url], ["doctor", url], ["top", url],
                        ["bench", "serve", url.replace("--url", "--base-url")]):
            child = subprocess.Popen([str(a) for a in (QUIRE, *command)], stdout=subprocess.DEVNULL, env=CLEAN,
                                     stderr=subprocess.DEVNULL, start_new_session=True)
            deaf.settimeout(60)
            connection, _ = deaf.accept()
            connection.recv(1)  # it has asked
            child.send_signal(signal.SIGINT)
            code = child.wait(timeout=60)
            expect(code in (130, -signal.SIGINT), (command, code))
            connection.close()
