"""LoRA adapters of a model that is cut among ranks: they come and go while it serves, and are there again after a rank
has died, whatever has become of their folders."""
import os
import pathlib
import shutil
import signal
import threading

import lora
import pytest
from harness import DEMO, Server, expect
from lora_runtime_test import LOADED, changes_beside_streams, load, metric, status_of, stream_of, text_of

TWO = ("--tensor-parallel-size=2", "--enable-lora", "--max-loras=2", "--max-lora-rank=8")
KINDS = {"threads": ("--rank-backend=thread",), "processes": ("--rank-backend=process",)}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("one", "two", "three"), 1):
        lora.make(DEMO, folder / name, seed)
    shutil.copytree(folder / "one", folder / "broken")
    (folder / "broken" / "adapter_model.safetensors").write_bytes(b"no tensors")
    return folder


@pytest.fixture(scope="module")
def texts(made):
    """What the model and each adapter write on two ranks, alone, from the start on."""
    names = ("one", "two", "three")
    modules = [f"--lora-modules={name}={made / name}" for name in names]
    with Server(*TWO, "--max-loras=3", *modules) as server:
        found = {name: (text_of(server, name), stream_of(server, name)) for name in ("demo", *names)}
    expect(len({text for text, _ in found.values()}) == 4, f"each writes its own: {found}")
    return found


def ranks_of(worker):
    """The processes that a worker has started."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            status = (process / "status").read_text()
        except OSError:
            continue
        if f"\nPPid:\t{worker}\n" in status:
            found.append(int(process.name))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_come_and_go_while_streams_run(made, texts, kind):
    with Server(*TWO, *KINDS[kind]) as server:
        expect(load(server, "sql", made / "one") == (200, LOADED.format("sql")), "it is loaded")
        expect(text_of(server, "sql") == texts["one"][0], "its answers")
        changes_beside_streams(server, made, texts)


def test_they_are_there_again_after_a_rank_has_died(made, texts, tmp_path):
    wanted = tmp_path / "wanted"
    shutil.copytree(made / "one", wanted / "sql")
    shutil.copytree(made / "two", tmp_path / "more")
    with Server(*TWO, *KINDS["processes"], f"--lora-dir={wanted}") as server:
        server.wait_until(lambda: status_of(server, "sql") == 200, "the folder's is served")
        expect(load(server, "more", tmp_path / "more")[0] == 200, "one more by order")
        answers = []
        running = threading.Thread(target=lambda: answers.append(stream_of(server, "more")))
        running.start()
        server.wait_until(lambda: (metric(server, "quire_router_accepted_tokens_total") or 0) > 20, "it is under way")
        shutil.rmtree(tmp_path / "more")
        worker, = server.children("quire-worker")
        before = set(ranks_of(worker))
        os.kill(min(before), signal.SIGKILL)
        running.join()
        expect(answers == [texts["two"][1]], "the stream goes on with what began it")
        expect(text_of(server, "sql") == texts["one"][0], "and so does the folder's")
        expect(text_of(server, "more") == texts["two"][0], "though the folder of the other has gone")
        expect(len(before) == len(ranks_of(worker)) == 2 and min(before) not in ranks_of(worker),
               f"{before} became {ranks_of(worker)} under the same worker")
