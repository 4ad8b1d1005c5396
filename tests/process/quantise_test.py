"""`quire quantize`: what it writes loads and answers, its report is true, and bad input gets one line."""
import json
import signal
import struct
import subprocess

import pytest
from commands_test import CLEAN, QUIRE, quire
from harness import Server, expect, wait_until

PACKED = {"w4a16": ("pack-quantized", 4, 0.12), "w8a16": ("pack-quantized", 8, 0.012),
          "w8a8": ("int-quantized", 8, 0.012), "fp8": ("float-quantized", 8, 0.03)}
BLOCKS = {"q4_0": 0.10, "q8_0": 0.006, "q4_k_s": 0.09, "q4_k_m": 0.09, "q5_k_m": 0.045, "q6_k": 0.021}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder and a GGUF file in floats, of one made-up model."""
    at = tmp_path_factory.mktemp("floats")
    for folder, dtype in (("folder", "bf16"), ("file", "gguf_f16")):
        code, _, err = quire("make-weights", "tiny-llama", at / folder, f"--dtype={dtype}")
        expect((code, err) == (0, ""), (code, err))
    return at


def tensors(path):
    """Name, type and shape of each tensor of a safetensors file, and the bytes of each."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    head.pop("__metadata__")
    return {name: (t["dtype"], t["shape"], data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for name, t in head.items()}


def report(path):
    lines = path.read_text().splitlines()
    expect(lines[0] == "matrix\ttype\trows\tcolumns\trelative error", lines[0])
    return [line.split("\t") for line in lines[1:]]


def answers(model):
    with Server("--threads=1", "--served-model-name=small", model=model) as server:
        status, answer = server.post("/v1/completions", {"model": "small", "prompt": "Once", "max_tokens": 8,
                                                         "ignore_eos": True, "temperature": 0})
        expect(status == 200 and answer["usage"]["completion_tokens"] == 8, (status, answer))
        return answer["choices"][0]["text"]


@pytest.mark.parametrize("name", PACKED)
def test_a_folder_becomes_one_in_compressed_tensors(made, tmp_path, name):
    layout, bits, most = PACKED[name]
    code, out, err = quire("quantize", made / "folder", tmp_path / "small", f"--format={name}", f"--report={tmp_path / 'report'}")
    expect(code == 0 and f"14 matrices are {name}, 7 tensors stay" in out and "serve it" in out, (code, out, err))
    config = json.loads((tmp_path / "small/config.json").read_text())
    said = config["quantization_config"]
    weights = said["config_groups"]["group_0"]["weights"]
    expect(said["format"] == layout and weights["num_bits"] == bits and said["ignore"] == ["lm_head"], said)
    before, after = tensors(made / "folder/model.safetensors"), tensors(tmp_path / "small/model.safetensors")
    module = "model.layers.1.mlp.down_proj"
    expect(after["model.norm.weight"] == before["model.norm.weight"], "what stays keeps its bytes")
    expect(after["lm_head.weight"] == before["lm_head.weight"], "the head too")
    packed = after[f"{module}.weight_packed" if layout == "pack-quantized" else f"{module}.weight"]
    expect(len(packed[2]) == 128 * 256 * bits // 8, packed[:2])
    expect(after[f"{module}.weight_scale"][1] == [128, 2 if bits == 4 else 1], after[f"{module}.weight_scale"][1])
    rows = report(tmp_path / "report")
    expect(len(rows) == 14 and all(row[1] == name and 0 < float(row[4]) < most for row in rows), rows)
    for companion in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        expect((tmp_path / "small" / companion).read_bytes() == (made / "folder" / companion).read_bytes(), companion)
    answers(tmp_path / "small")


@pytest.mark.parametrize("name", BLOCKS)
def test_a_gguf_file_becomes_a_smaller_one(made, tmp_path, name):
    model = made / "file/model.gguf"
    code, out, err = quire("quantize", model, tmp_path / "small", f"--format={name}", f"--report={tmp_path / 'report'}", "--threads=1")
    expect(code == 0 and f"16 matrices are {name}, 6 tensors stay" in out, (code, out, err))
    small = tmp_path / "small/model.gguf"
    expect([small] == list(small.parent.iterdir()) and small.stat().st_size < model.stat().st_size, list(small.parent.iterdir()))
    types = {row[0]: row[1] for row in report(tmp_path / "report")}
    losses = [float(row[4]) for row in report(tmp_path / "report")]
    expect(all(0 < loss < BLOCKS[name] for loss in losses), losses)
    # Rows of 128 are no whole blocks of 256: they get the next type that fits.
    fits = {"q4_0": ("Q4_0", "Q4_0"), "q8_0": ("Q8_0", "Q8_0"), "q4_k_s": ("Q5_0", "Q4_K"), "q4_k_m": ("Q5_0", "Q6_K"),
            "q5_k_m": ("Q5_1", "Q6_K"), "q6_k": ("Q8_0", "Q6_K")}[name]
    expect((types["blk.0.attn_q.weight"], types["blk.1.ffn_down.weight"]) == fits, types)
    expect(types["output.weight"] == "Q8_0", types)
    answers(small)


def test_two_threads_write_the_bytes_of_one(made, tmp_path):
    for threads in (1, 2):
        code, _, err = quire("quantize", made / "file/model.gguf", tmp_path / str(threads), "--format=q4_k_m", f"--threads={threads}")
        expect(code == 0, err)
    expect((tmp_path / "1/model.gguf").read_bytes() == (tmp_path / "2/model.gguf").read_bytes(), "bytes differ")


def test_bad_input_gets_one_line_and_leaves_nothing(made, tmp_path):
    folder, file, new = made / "folder", made / "file/model.gguf", tmp_path / "new"
    code, _, err = quire("quantize", file, tmp_path / "small", "--format=q8_0")
    expect(code == 0, err)
    broken = tmp_path / "broken"
    broken.mkdir()
    for part in folder.iterdir():
        (broken / part.name).write_bytes(part.read_bytes())
    weights = bytearray((broken / "model.safetensors").read_bytes())
    size = struct.unpack("<Q", weights[:8])[0]
    begin = json.loads(weights[8:8 + size])["model.layers.0.mlp.up_proj.weight"]["data_offsets"][0]
    weights[8 + size + begin:8 + size + begin + 2] = b"\xc0\x7f"  # NaN
    (broken / "model.safetensors").write_bytes(weights)
    for args, wanted, mention in (
            ((folder, new), 2, "--format is missing"), ((folder, new, "--format=q3"), 2, "q4_k_m"),
            ((folder,), 2, "DIR is missing"), (("no-such-model", new, "--format=fp8"), 3, "no-such-model"),
            ((folder, new, "--format=q4_k_m"), 2, "is a folder: it takes w4a16, w8a16, w8a8, fp8"),
            ((file, new, "--format=fp8"), 2, "is a GGUF file: it takes q4_0, q8_0"),
            ((tmp_path / "small", new, "--format=q4_0"), 2, "is quantised already"),
            ((folder, folder, "--format=fp8"), 2, "give a new folder"),
            ((broken, new, "--format=fp8"), 2, 'tensor "model.layers.0.mlp.up_proj.weight" is no finite number')):
        code, out, err = quire("quantize", *args)
        said = [line for line in err.splitlines() if not line.startswith("quantising: ")]
        expect((code, out) == (wanted, "") and len(said) == 1 and mention in said[0], (args, code, out, err))
        expect(not new.exists(), args)


def rewritten(folder, to, change):
    """A copy of a checkpoint's folder whose tensors `change` has changed: name → [type, shape, bytes]."""
    to.mkdir()
    for part in folder.iterdir():
        (to / part.name).write_bytes(part.read_bytes())
    parts = {name: list(tensor) for name, tensor in tensors(folder / "model.safetensors").items()}
    change(parts)
    head, data = {}, b""
    for name, (dtype, shape, content) in parts.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(head).encode()
    (to / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return to


def test_hostile_folders_end_in_one_line(made, tmp_path):
    folder = made / "folder"
    matrix = "model.layers.0.mlp.up_proj.weight"

    def beside(parts):
        parts[matrix + "_scale"] = ["BF16", [256, 1], bytes(512)]

    def empty(parts):
        parts["model.layers.9.a_proj.weight"] = ["BF16", [4, 0], b""]
        parts["model.layers.9.b_proj.weight"] = ["BF16", [0, 128], b""]

    code, out, err = quire("quantize", rewritten(folder, tmp_path / "beside", beside), tmp_path / "new", "--format=fp8")
    expect((code, out) == (2, "") and f'tensor "{matrix}_scale" is beside "{matrix}"' in err and err.count("\n") == 1, err)
    code, out, err = quire("quantize", rewritten(folder, tmp_path / "empty", empty), tmp_path / "kept", "--format=fp8")
    expect(code == 0 and "14 matrices are fp8, 9 tensors stay" in out, (code, out, err))
    # At most so many files beside the weights; the folder has three, and config.json is none of them.
    many = rewritten(folder, tmp_path / "many", lambda parts: None)
    for i in range(97):
        (many / f"note{i}.txt").write_text("x")
    code, _, err = quire("quantize", many, tmp_path / "at-the-limit", "--format=fp8")
    expect(code == 0 and len(list((tmp_path / "at-the-limit").iterdir())) == 102, err)
    (many / "one-more.txt").write_text("x")
    code, _, err = quire("quantize", many, tmp_path / "new", "--format=fp8")
    expect(code == 2 and "has more than 100 files beside its weights" in err, err)
    (many / "one-more.txt").unlink()
    # A link that leads out of the folder is not copied, and one file has a limit.
    (many / "note0.txt").unlink()
    (many / "note0.txt").symlink_to("/etc/hostname")
    code, _, err = quire("quantize", many, tmp_path / "new", "--format=fp8")
    expect(code != 0 and "note0.txt" in err.splitlines()[-1] and not (tmp_path / "new").exists(), (code, err))
    (many / "note0.txt").unlink()
    with (many / "note0.txt").open("wb") as file:
        file.truncate((64 << 20) + 1)
    code, _, err = quire("quantize", many, tmp_path / "new", "--format=fp8")
    expect(code != 0 and "note0.txt" in err.splitlines()[-1] and not (tmp_path / "new").exists(), (code, err))
    code, _, err = quire("quantize", folder, tmp_path / "new", "--format=fp8", f"--report={many / 'config.json'}")
    expect(code == 2 and "is there already; name a new file" in err and not (tmp_path / "new").exists(), err)


def test_an_interrupt_leaves_nothing_that_loads(tmp_path):
    code, _, err = quire("make-weights", "Llama-3.2-1B", tmp_path / "model", "--dtype=gguf_f16", "--layers=2")
    expect(code == 0, err)
    child = subprocess.Popen([str(QUIRE), "quantize", str(tmp_path / "model/model.gguf"), str(tmp_path / "small"), "--format=q4_k_m"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=CLEAN, text=True)
    wait_until(lambda: any((tmp_path / "small").glob("*.part")), "it is under way")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    expect(child.returncode == 130 and "interrupted" in err, (child.returncode, err))
    expect(not (tmp_path / "small").exists(), "it is gone")
