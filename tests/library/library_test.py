"""`from quire import LLM`: what it answers is what the server answers, and nothing that a caller does hurts the process."""
import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
from harness import BIN, DEMO, ROOT, Server, expect

LIBRARY = BIN.parent / "lib" / "libquire.so"
os.environ["QUIRE_LIBRARY"] = str(LIBRARY)
sys.path.insert(0, str(ROOT / "library" / "python"))

import quire  # noqa: E402
from quire import LLM, AsyncLLM, SamplingParams, StructuredOutputsParams  # noqa: E402

PROMPTS = ["Once upon a time", "The fox", "A small bird said", "Tom and Lily"]


@pytest.fixture(scope="module")
def llm():
    with LLM(model=str(DEMO), threads=2) as one:
        yield one


@pytest.fixture(scope="module")
def server():
    with Server() as one:
        yield one


def run_python(code, *args, **more):
    return subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "library" / "python")}, **more)


def test_the_header_from_c(tmp_path):
    program = tmp_path / "header_test"
    subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT}",
                    ROOT / "tests" / "library" / "header_test.c", "-o", program, f"-L{LIBRARY.parent}", "-lquire", "-pthread",
                    f"-Wl,-rpath,{LIBRARY.parent}"], check=True)
    done = subprocess.run([program, DEMO], capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0 and done.stdout == "ok\n", (done.returncode, done.stderr[-2000:]))


def test_it_shows_its_functions_and_nothing_else():
    told = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in told.splitlines()}
    header = (ROOT / "library" / "quire.h").read_text()
    declared = {word.split("(")[0].split()[-1].lstrip("*") for word in header.split("QUIRE_API ")[1:] if "(" in word.split(";")[0]}
    declared = {name for name in declared if name.startswith("quire_")}
    expect(names == declared, (names ^ declared))
    needed = subprocess.run(["objdump", "-p", LIBRARY], capture_output=True, text=True, check=True).stdout
    expect("libgrpc" not in needed, [line for line in needed.splitlines() if "NEEDED" in line])


@pytest.mark.parametrize("fields", [
    {"temperature": 0}, {"temperature": 0.9, "seed": 5}, {"temperature": 1.2, "seed": 7, "top_p": 0.8, "top_k": 20, "n": 3},
    {"temperature": 0.9, "seed": 2, "stop": [" the", "."], "presence_penalty": 1.5, "repetition_penalty": 1.2},
    {"temperature": 0, "stop": ["a"], "include_stop_str_in_output": True, "min_tokens": 5},
    {"temperature": 0.7, "seed": 3, "logit_bias": {20: -50.0}, "bad_words": ["and"]},
], ids=str)
def test_texts_are_the_servers(llm, server, fields):
    outputs = llm.generate(PROMPTS, SamplingParams(max_tokens=40, **fields), use_tqdm=False)
    expect([output.prompt for output in outputs] == PROMPTS, outputs)
    for output in outputs:
        status, answer = server.post("/v1/completions", {
            "prompt": output.prompt, "max_tokens": 40, "return_token_ids": True, "top_p": 1, "top_k": -1,
            **{name: {str(k): v for k, v in value.items()} if name == "logit_bias" else value for name, value in fields.items()}})
        expect(status == 200, answer)
        for mine, theirs in zip(output.outputs, answer["choices"], strict=True):
            expect((mine.text, mine.finish_reason, mine.stop_reason, mine.token_ids) ==
                   (theirs["text"], theirs["finish_reason"], theirs["stop_reason"], theirs["token_ids"]), (mine, theirs))
        expect(output.finished and len(output.prompt_token_ids) == answer["usage"]["prompt_tokens"], output)


def test_chats_are_the_servers(llm, server):
    chats = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}] for text in PROMPTS]
    params = SamplingParams(max_tokens=30, temperature=0.8, seed=4)
    for chat, output in zip(chats, llm.chat(chats, params), strict=True):
        status, answer = server.post("/v1/chat/completions", {"messages": chat, "max_tokens": 30, "temperature": 0.8,
                                                              "seed": 4, "top_p": 1, "top_k": -1})
        expect(status == 200 and answer["choices"][0]["message"]["content"] == output.outputs[0].text, (answer, output))
        expect(chat[1]["content"] in output.prompt, output.prompt)
    (one,) = llm.chat(chats[0], params)
    (again,) = llm.chat([chats[0]], [params])
    expect(one.outputs[0].text == again.outputs[0].text, (one, again))


def test_logprobs_have_vllms_shape(llm, server):
    (output,) = llm.generate(PROMPTS[0], SamplingParams(max_tokens=6, temperature=0, logprobs=3, prompt_logprobs=2))
    choice = output.outputs[0]
    expect(len(choice.logprobs) == len(choice.token_ids) == 6, choice)
    for token, candidates in zip(choice.token_ids, choice.logprobs, strict=True):
        expect(token in candidates and len(candidates) == 3 and candidates[token].rank == 1, candidates)
    total = sum(c[t].logprob for t, c in zip(choice.token_ids, choice.logprobs, strict=True))
    expect(abs(choice.cumulative_logprob - total) < 1e-9 and total < 0, (choice.cumulative_logprob, total))
    expect(output.prompt_logprobs[0] is None and len(output.prompt_logprobs) == len(output.prompt_token_ids), output)
    for token, candidates in list(zip(output.prompt_token_ids, output.prompt_logprobs, strict=True))[1:]:
        expect(token in candidates and candidates[token].rank >= 1, candidates)
    _, answer = server.post("/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 6, "temperature": 0, "logprobs": 3})
    theirs = answer["choices"][0]["logprobs"]["token_logprobs"]
    expect(all(abs(c[t].logprob - x) < 1e-5 for t, c, x in zip(choice.token_ids, choice.logprobs, theirs, strict=True)), theirs)
    (chat,) = llm.chat([{"role": "user", "content": "Hi"}], SamplingParams(max_tokens=4, temperature=0, logprobs=1))
    expect(len(chat.outputs[0].logprobs) == len(chat.outputs[0].token_ids), chat)


def test_prompts_come_as_text_or_tokens(llm):
    tokenizer = llm.get_tokenizer()
    ids = tokenizer.encode(PROMPTS[0])
    params = SamplingParams(max_tokens=10, temperature=0)
    forms = [PROMPTS[0], {"prompt": PROMPTS[0]}, {"prompt_token_ids": ids}]
    texts = [output.outputs[0].text for output in llm.generate(forms, params)]
    expect(len(set(texts)) == 1 and llm.generate(ids, params)[0].outputs[0].text == texts[0], texts)
    expect(tokenizer.decode(ids, skip_special_tokens=True) == PROMPTS[0], tokenizer.decode(ids))
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True)
    expect("Hi" in rendered and isinstance(tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}]), list), rendered)
    expect(llm.generate([], params) == [], "no prompts, no outputs")
    (rest,) = llm.generate([PROMPTS[0]], SamplingParams(max_tokens=None, temperature=0))
    expect(len(rest.outputs[0].token_ids) > 16, rest)


def test_structured_outputs_hold(llm):
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    params = [SamplingParams(max_tokens=60, seed=1, structured_outputs=StructuredOutputsParams(json=schema)),
              SamplingParams(max_tokens=60, seed=1, structured_outputs=StructuredOutputsParams(choice=["yes", "no"])),
              SamplingParams(max_tokens=60, seed=1, structured_outputs={"regex": "[ab]{3}"})]
    texts = [output.outputs[0].text for output in llm.generate(PROMPTS[:3], params)]
    expect(texts[1] in ("yes", "no") and len(texts[2]) == 3 and set(texts[2]) <= set("ab"), texts)
    if texts[0].endswith("}"):
        expect(isinstance(json.loads(texts[0])["age"], int), texts[0])


def test_what_is_wrong_is_said_by_name(llm):
    for fields, words in (({"temprature": 1}, "temperature"), ({"maxtokens": 1}, "max_tokens"), ({"zzz": 1}, "'zzz'")):
        with pytest.raises(TypeError, match=words):
            SamplingParams(**fields)
    with pytest.raises(ValueError, match="best_of"):
        SamplingParams(best_of=3)
    with pytest.raises(TypeError, match="regex"):
        StructuredOutputsParams(regexp="a")
    with pytest.raises(ValueError, match="exactly one"):
        StructuredOutputsParams(regex="a", choice=["b"])
    for params, words in ((SamplingParams(top_p=7), "top_p"), (SamplingParams(max_tokens=10**6), "max_tokens"),
                          (SamplingParams(n=1000), "n"), (SamplingParams(structured_outputs={"regex": "("}), "regex")):
        with pytest.raises(ValueError, match=words):
            llm.generate(PROMPTS, params)
    with pytest.raises(ValueError, match="prompt"):
        llm.generate("")
    with pytest.raises(TypeError, match="a prompt is"):
        llm.generate([7.5])
    with pytest.raises(ValueError, match="as many"):
        llm.generate(PROMPTS, [SamplingParams()])
    with pytest.raises(ValueError, match="lora_request"):
        llm.generate(PROMPTS, lora_request=object())
    with pytest.raises(ValueError, match="messages"):
        llm.chat([{"content": "who says it"}])
    for options, kind, words in (({"max_model_length": 5}, ValueError, "max-model-len"), ({"quantization": "awq"}, ValueError, "quantization"),
                                 ({"device": "cuda"}, ValueError, "device"), ({"tokenizer": "other"}, ValueError, "tokenizer"),
                                 ({"max_model_len": 10**9}, ValueError, "max-model-len")):
        with pytest.raises(kind, match=words):
            LLM(model=str(DEMO), **options)
    with pytest.raises(quire.ModelError, match="no such folder|neither a path|cannot"):
        LLM(model="/no/such/model")
    # After all that it answers as before.
    expect(llm.generate("Once", SamplingParams(max_tokens=2))[0].finished, "an answer")


def test_vllms_arguments_that_change_nothing_are_taken():
    with LLM(model=str(DEMO), tokenizer=None, trust_remote_code=True, gpu_memory_utilization=0.5, enforce_eager=True, seed=3,
             max_model_len=256, max_num_seqs=2, dtype="auto", tensor_parallel_size=1, disable_log_stats=True) as one:
        expect(one.info["max_model_len"] == 256, one.info)
        first = [output.outputs[0].text for output in one.generate(PROMPTS, SamplingParams(max_tokens=8))]
    with LLM(model=str(DEMO), seed=3, max_model_len=256) as two:
        again = [output.outputs[0].text for output in two.generate(PROMPTS, SamplingParams(max_tokens=8))]
    expect(first == again and len(set(first)) > 1, (first, again))


def test_drafts_change_no_text(llm):
    prompts = ["Once upon a time", "one two three one two three one two"]
    params = SamplingParams(temperature=0.8, seed=7, max_tokens=40)
    wanted = [output.outputs[0].text for output in llm.generate(prompts, params)]
    for config in ({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2},
                   {"method": "draft_model", "model": str(DEMO), "num_speculative_tokens": 3},
                   {"method": "layer_skip", "skip_layers": [1], "num_speculative_tokens": 2}):
        with LLM(model=str(DEMO), speculative_config=config) as drafting:
            assert [output.outputs[0].text for output in drafting.generate(prompts, params)] == wanted, config
    with pytest.raises(ValueError, match="suffix"):
        LLM(model=str(DEMO), speculative_config={"method": "suffix", "num_speculative_tokens": 3})


def test_more_prompts_than_may_be_under_way(llm):
    outputs = llm.generate([[5 + i % 50] for i in range(4200)], SamplingParams(max_tokens=1))
    expect(len(outputs) == 4200 and all(len(o.outputs[0].token_ids) == 1 for o in outputs), len(outputs))
    expect([o.prompt_token_ids[-1] for o in outputs] == [5 + i % 50 for i in range(4200)], "the order of the prompts")


def test_two_models_and_many_threads(llm):
    want = [o.outputs[0].text for o in llm.generate(PROMPTS, SamplingParams(max_tokens=20, seed=1))]
    seen = {}
    with LLM(model=str(DEMO), threads=1) as other:
        def ask(i):
            seen[i] = [o.outputs[0].text for o in (llm, other)[i % 2].generate(PROMPTS, SamplingParams(max_tokens=20, seed=1))]
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expect(all(seen[i] == want for i in range(6)), seen)


def test_streams_for_asyncio():
    async def ask(model, prompt, **fields):
        texts = []
        async for output in model.generate(prompt, SamplingParams(max_tokens=30, temperature=0, **fields)):
            texts.append(output.outputs[0].text)
        expect(output.finished and all(b.startswith(a) for a, b in zip(texts, texts[1:], strict=False)), texts)
        return texts

    async def leave(model):
        async for output in model.generate(PROMPTS[0], SamplingParams(max_tokens=1500, ignore_eos=True)):
            return output.outputs[0].text

    async def all_of():
        with AsyncLLM(model=str(DEMO)) as model:
            answers = await asyncio.gather(*[ask(model, prompt) for prompt in PROMPTS], leave(model))
            chat = [output async for output in model.chat([{"role": "user", "content": "Hi"}], SamplingParams(max_tokens=5))]
            with pytest.raises(ValueError, match="top_p"):
                await ask(model, "a", top_p=5)
            return answers, chat

    answers, chat = asyncio.run(all_of())
    expect(all(len(texts) > 5 for texts in answers[:4]) and chat[-1].finished, answers)
    with LLM(model=str(DEMO)) as llm:
        whole = [o.outputs[0].text for o in llm.generate(PROMPTS, SamplingParams(max_tokens=30, temperature=0))]
    expect([texts[-1] for texts in answers[:4]] == whole, (answers, whole))


def test_closing_in_the_middle_ends_every_wait():
    model = LLM(model=str(DEMO), threads=1)
    problem = []

    def ask():
        try:
            model.generate(PROMPTS * 20, SamplingParams(max_tokens=1500, ignore_eos=True))
        except quire.EngineGone as gone:
            problem.append(gone)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.2)
    model.close()
    model.close()
    thread.join(timeout=30)
    expect(not thread.is_alive() and problem, "the call has ended")
    with pytest.raises(quire.EngineGone, match="load another"):
        model.generate("a")


def test_ctrl_c_ends_a_call_and_the_model_goes_on(tmp_path):
    code = """
import sys, time
from quire import LLM, SamplingParams
llm = LLM(model=sys.argv[1], threads=1)
print("ready", flush=True)
begun = time.monotonic()
try:
    llm.generate(["a"] * 200, SamplingParams(max_tokens=1500, ignore_eos=True))
    print("no interrupt")
except KeyboardInterrupt:
    print("interrupted")
print(len(llm.generate("Once", SamplingParams(max_tokens=3))[0].outputs[0].token_ids), flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code, DEMO], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "library" / "python")}) as child:
        expect(child.stdout.readline() == "ready\n", "loaded")
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        rest, _ = child.communicate(timeout=60)
        expect(child.returncode == 0 and rest == "interrupted\n3\n", (child.returncode, rest))


def test_a_child_of_fork_is_told_and_may_load_its_own():
    code = """
import os, sys
import quire
from quire import LLM, SamplingParams
llm = LLM(model=sys.argv[1], threads=1)
want = llm.generate("Once", SamplingParams(max_tokens=5, temperature=0))[0].outputs[0].text
child = os.fork()
if child == 0:
    try:
        llm.generate("Once")
        os._exit(1)
    except quire.EngineGone as gone:
        assert "before fork" in str(gone), gone
    own = LLM(model=sys.argv[1], threads=1)
    same = own.generate("Once", SamplingParams(max_tokens=5, temperature=0))[0].outputs[0].text == want
    own.close()
    sys.exit(0 if same else 2)
assert os.waitpid(child, 0)[1] == 0
print(llm.generate("Once", SamplingParams(max_tokens=5, temperature=0))[0].outputs[0].text == want)
"""
    done = run_python(code, DEMO)
    expect(done.returncode == 0 and done.stdout == "True\n", (done.stdout, done.stderr[-2000:]))


def test_leaving_without_closing_is_clean(tmp_path):
    code = """
import sys, threading
from quire import LLM, SamplingParams
llm = LLM(model=sys.argv[1], threads=1)
threading.Thread(target=lambda: llm.generate(["a"] * 50, SamplingParams(max_tokens=1500, ignore_eos=True)), daemon=True).start()
print(llm.generate("Once", SamplingParams(max_tokens=2))[0].finished)
"""
    for _ in range(3):
        done = run_python(code, DEMO)
        expect(done.returncode == 0 and done.stdout == "True\n", (done.returncode, done.stdout, done.stderr[-2000:]))


def test_vllms_quickstart_with_its_import_changed(tmp_path):
    """The example that vLLM's own pages begin with; its model is a folder of that name."""
    (tmp_path / "facebook").mkdir()
    (tmp_path / "facebook" / "opt-125m").symlink_to(DEMO)
    code = """
from quire import LLM, SamplingParams

# Sample prompts.
prompts = [
    "Hello, my name is",
    "The president of the United States is",
    "The capital of France is",
    "The future of AI is",
]
# Create a sampling params object.
sampling_params = SamplingParams(temperature=0.8, top_p=0.95)


def main():
    llm = LLM(model="facebook/opt-125m")
    outputs = llm.generate(prompts, sampling_params)
    print("\\nGenerated Outputs:\\n" + "-" * 60)
    for output in outputs:
        prompt = output.prompt
        generated_text = output.outputs[0].text
        print(f"Prompt:    {prompt!r}")
        print(f"Output:    {generated_text!r}")
        print("-" * 60)


if __name__ == "__main__":
    main()
"""
    done = run_python(code, cwd=tmp_path)
    expect(done.returncode == 0 and done.stdout.count("Output:    '") + done.stdout.count('Output:    "') == 4,
           (done.stdout, done.stderr[-2000:]))


def test_names_of_models_mean_what_they_mean_to_the_command():
    code = "from quire.llm import find_model; print(find_model('demo'))"
    done = run_python(code)
    expect(pathlib.Path(done.stdout.strip()).resolve() == DEMO.resolve(), (done.stdout, done.stderr[-500:]))
