"""Models in this process: vLLM's LLM, and streams for asyncio."""
from __future__ import annotations

import asyncio
import itertools
import os
import pathlib
import queue
import shutil
import subprocess
import sys

from quire import engine as native
from quire.errors import EngineGone, ModelError, QuireError
from quire.outputs import Assembler
from quire.sampling import SamplingParams, dumps

# Arguments of vLLM's LLM that say nothing here, with the values that are taken.
ANYTHING = object()
NEUTRAL = {
    "tokenizer_mode": ("auto", "hf", "fast"), "skip_tokenizer_init": (False,), "trust_remote_code": ANYTHING,
    "gpu_memory_utilization": ANYTHING, "swap_space": ANYTHING, "cpu_offload_gb": (0, 0.0), "enforce_eager": ANYTHING,
    "disable_log_stats": ANYTHING, "disable_custom_all_reduce": ANYTHING, "quantization": (None,), "revision": (None,),
    "tokenizer_revision": (None,), "max_seq_len_to_capture": ANYTHING, "allowed_local_media_path": ("", None),
    "task": (None, "auto", "generate"), "runner": (None, "auto", "generate"), "convert": (None, "auto", "none"),
    "hf_token": (None, False), "hf_overrides": (None, {}), "mm_processor_kwargs": (None, {}), "pooler_config": (None,),
    "compilation_config": (None, 0), "logits_processors": (None, []), "enable_lora": (False,), "kv_transfer_config": (None,),
    "load_format": ("auto", "safetensors"), "enable_chunked_prefill": ANYTHING,
    "pipeline_parallel_size": (1,), "data_parallel_size": (1,), "distributed_executor_backend": (None, "mp", "uni"),
}
WAIT_S = 0.05  # between two looks for room, where a loop must not be held up


def _program():
    packed = pathlib.Path(__file__).resolve().parent / "_quire" / "bin" / "quire"
    built = pathlib.Path(__file__).resolve().parents[3] / "build" / "bin" / "quire"
    for place in (packed, built, shutil.which("quire")):
        if place and os.path.exists(place):
            return str(place)
    return None


def _said(program, *args):
    done = subprocess.run([program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE if args[0] == "show" else None,
                          text=True, check=False)
    return done.returncode, done.stdout


def find_model(name):
    """The path of a model: a path itself, a name that `quire list` shows, or one that is pulled now."""
    if os.path.exists(name):
        return name
    program = _program()
    if program is None:
        raise ModelError(f"{name}: there is no such folder or file")
    _, said = _said(program, "show", name)
    for line in said.splitlines():
        if line.startswith("path "):
            return line.split(None, 1)[1]
    # vLLM's names are the hub's.
    asked = f"hf:{name}" if "/" in name and ":" not in name else name
    code, said = _said(program, "pull", asked)
    if code == 130:
        raise KeyboardInterrupt
    if code != 0:
        raise ModelError(f"{name}: is neither a path nor a model that can be pulled; the reason stands above")
    return said.strip().splitlines()[-1]


def _speculation(config):
    """vLLM's dictionary as the worker's flag takes it. The model of one that drafts may be a name, too."""
    if not isinstance(config, dict):
        return config
    model = config.get("model")
    return dumps({**config, "model": find_model(os.fspath(model))} if model else config).decode()


def engine_options(model, options):
    """The options of the library."""
    options["speculative_config"] = _speculation(options.get("speculative_config"))
    tokenizer = options.pop("tokenizer", None)
    if tokenizer not in (None, model):
        raise ValueError(f"tokenizer: is {tokenizer!r}; a model's own is used, leave it out")
    for name in [name for name in options if name in NEUTRAL]:
        taken, value = NEUTRAL[name], options.pop(name)
        if taken is not ANYTHING and value not in taken:
            raise ValueError(f"{name}: {value!r} is not served; leave it out")
    return {"model": find_model(os.fspath(model)), **{name: value for name, value in options.items() if value is not None}}


class Tokenizer:
    """The model's tokenizer and chat template."""

    def __init__(self, engine):
        self._engine = engine
        self.vocab_size = engine.info["vocab_size"]
        self.eos_token_id = (engine.info["eos_token_ids"] or [None])[0]

    def encode(self, text, add_special_tokens=True):
        return self._engine.tokenize(dumps({"prompt": text, "add_special_tokens": add_special_tokens}))

    def decode(self, token_ids, skip_special_tokens=False):
        return self._engine.detokenize([token_ids] if isinstance(token_ids, int) else token_ids, skip_special_tokens)

    def apply_chat_template(self, conversation, tokenize=True, add_generation_prompt=False, continue_final_message=False,
                            tools=None, **kwargs):
        body = _chat_body(conversation, add_generation_prompt, continue_final_message, tools, kwargs)
        return self._engine.tokenize(dumps(body)) if tokenize else self._engine.render(dumps(body))

    def __len__(self):
        return self.vocab_size


def _chat_body(messages, add_generation_prompt, continue_final_message, tools, template_kwargs):
    body = {"messages": messages, "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message}
    if tools:
        body["tools"] = tools
    if template_kwargs:
        body["chat_template_kwargs"] = template_kwargs
    return body


def _prompt_of(prompt):
    """The text, if it is one, and the fields of a request."""
    if isinstance(prompt, str):
        return prompt, {"prompt": prompt}
    if isinstance(prompt, dict) and prompt.get("prompt_token_ids") is not None:
        return prompt.get("prompt"), {"prompt": [int(token) for token in prompt["prompt_token_ids"]]}
    if isinstance(prompt, dict) and isinstance(prompt.get("prompt"), str):
        if prompt.get("multi_modal_data"):
            raise ValueError("multi_modal_data: is not served; prompts are text")
        return prompt["prompt"], {"prompt": prompt["prompt"]}
    if isinstance(prompt, (list, tuple)) and prompt and all(isinstance(token, int) for token in prompt):
        return None, {"prompt": list(prompt)}
    raise TypeError("a prompt is a text, a list of token ids, {'prompt': text} or {'prompt_token_ids': ids}, "
                    f"not {type(prompt).__name__}")


def _raise(event):
    error = event["error"]
    if event["event"] == "gone":
        raise EngineGone(error["message"])
    raise (ValueError if error.get("type") == "invalid_request_error" else QuireError)(error["message"])


class _Model:
    """What LLM and AsyncLLM share."""

    def __init__(self, model, seed=None, **options):
        self._engine = native.Engine(engine_options(model, options))
        self._seed = seed
        self._numbers = itertools.count()
        self.info = self._engine.info

    def get_tokenizer(self):
        return Tokenizer(self._engine)

    def get_default_sampling_params(self):
        """The model's own settings."""
        return SamplingParams(**self.info["generation"])

    def close(self):
        """Frees the model. What is under way ends with EngineGone."""
        self._engine.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _body(self, fields, params, chat=False, priority=0):
        """A request's text, and its number in this model."""
        number = next(self._numbers)
        params = params or self.get_default_sampling_params()
        body = {**fields, **params.body(chat)}
        if body.get("max_tokens", 0) is None:
            del body["max_tokens"]
            length = len(body["prompt"] if isinstance(body["prompt"], list) else self.get_tokenizer().encode(body["prompt"]))
            body["max_tokens"] = max(1, self.info["max_model_len"] - length)
        if "seed" not in body and self._seed is not None:
            body["seed"] = (int(self._seed) << 32 | number) % (1 << 63)
        if priority:
            body["priority"] = priority
        return dumps(body), str(number)

    def _chat(self, messages, add_generation_prompt, continue_final_message, tools, template_kwargs):
        """The rendered prompt, and the fields of a request."""
        if self.info["chat_problem"]:
            raise ValueError(self.info["chat_problem"])
        fields = _chat_body(messages, add_generation_prompt, continue_final_message, tools, template_kwargs or {})
        return self._engine.render(dumps(fields)), fields


class LLM(_Model):
    """A model that answers many prompts at once. Arguments are vLLM's, or flags of quire-worker by their names."""

    def generate(self, prompts, sampling_params=None, use_tqdm=True, lora_request=None, priority=None):
        """A RequestOutput for each prompt, in order. Ctrl-C ends all of them."""
        _no_adapter(lora_request)
        many = list(prompts) if isinstance(prompts, (list, tuple)) and not _is_ids(prompts) else [prompts]
        return self._run([_prompt_of(prompt) for prompt in many], sampling_params, use_tqdm, False, priority)

    def chat(self, messages, sampling_params=None, use_tqdm=True, lora_request=None, chat_template=None,
             add_generation_prompt=True, continue_final_message=False, tools=None, chat_template_kwargs=None):
        """The same for a conversation, or a list of them. The text of an answer is as the model writes it."""
        _no_adapter(lora_request)
        if chat_template is not None:
            raise ValueError("chat_template: is an argument of LLM, a file or a built-in name; leave it out here")
        many = [messages] if messages and isinstance(messages[0], dict) else list(messages)
        return self._run([self._chat(one, add_generation_prompt, continue_final_message, tools, chat_template_kwargs)
                          for one in many], sampling_params, use_tqdm, True, None)

    def _run(self, prompts, params, use_tqdm, chat, priority):
        each = list(params) if isinstance(params, (list, tuple)) else [params] * len(prompts)
        ranks = list(priority) if priority else [0] * len(prompts)
        if len(each) != len(prompts) or len(ranks) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts need as many sampling_params and priorities, "
                             f"not {len(each)} and {len(ranks)}")
        events = queue.SimpleQueue()
        answers, live = [None] * len(prompts), {}
        try:
            for i, (text, fields) in enumerate(prompts):
                body, name = self._body(fields, each[i], chat, ranks[i])
                answers[i] = Assembler(name, text, each[i] is not None and each[i].logprobs is not None)
                live[i] = self._engine.submit(body, lambda event, i=i: events.put((i, event)), native.RAW if chat else 0)
            with _Progress(len(prompts), use_tqdm) as progress:
                while live:
                    i, event = events.get()
                    del live[i]
                    if "error" in event:
                        _raise(event)
                    answers[i].take(event)
                    progress.step()
        finally:
            for number in live.values():
                self._engine.cancel(number)
        return [answer.output for answer in answers]


def _is_ids(prompts):
    return bool(prompts) and all(isinstance(one, int) for one in prompts)


def _no_adapter(lora_request):
    if lora_request is not None:
        raise ValueError("lora_request: adapters are not served in a process of one's own; leave it out")


class _Progress:
    """tqdm's bar on a terminal, where tqdm is installed."""

    def __init__(self, total, wanted):
        self.bar = None
        if wanted and sys.stderr is not None and sys.stderr.isatty():
            try:
                from tqdm import tqdm
                self.bar = tqdm(total=total, desc="Processed prompts")
            except ImportError:
                pass

    def step(self):
        if self.bar is not None:
            self.bar.update(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.bar is not None:
            self.bar.close()


class AsyncLLM(_Model):
    """A model whose answers are streams for asyncio. Arguments are those of LLM."""

    async def generate(self, prompt, sampling_params=None, request_id=None, priority=0):
        """Yields the RequestOutput as it grows; the last one is finished. Leaving the loop ends the request."""
        text, fields = _prompt_of(prompt)
        async for output in self._stream(text, fields, sampling_params, request_id, False, priority):
            yield output

    async def chat(self, messages, sampling_params=None, request_id=None, add_generation_prompt=True,
                   continue_final_message=False, tools=None, chat_template_kwargs=None):
        """The same for a conversation."""
        text, fields = self._chat(messages, add_generation_prompt, continue_final_message, tools, chat_template_kwargs)
        async for output in self._stream(text, fields, sampling_params, request_id, True, 0):
            yield output

    def shutdown(self):
        """vLLM's name of close."""
        self.close()

    async def _stream(self, text, fields, params, request_id, chat, priority):
        body, name = self._body(fields, params, chat, priority)
        loop, events = asyncio.get_running_loop(), asyncio.Queue()

        def sink(event):
            try:
                loop.call_soon_threadsafe(events.put_nowait, event)
            except RuntimeError:  # the loop is closed: no one listens
                pass

        flags = native.STREAM | (native.RAW if chat else 0)
        number = self._engine.submit(body, sink, flags, wait=False)
        while number is None:
            await asyncio.sleep(WAIT_S)
            number = self._engine.submit(body, sink, flags, wait=False)
        answer = Assembler(request_id or name, text, params is not None and params.logprobs is not None)
        try:
            while not answer.output.finished:
                event = await events.get()
                if "error" in event:
                    answer.output.finished = True
                    _raise(event)
                if answer.take(event):
                    yield answer.output
        finally:
            if not answer.output.finished:
                self._engine.cancel(number)
