#!/usr/bin/env python3
"""Trains the demo model from nothing: generates its texts, its tokenizer and its weights.

    python -m venv venv && venv/bin/pip install -r models/demo/requirements.txt
    venv/bin/python models/demo/train.py --work /tmp/demo --out models/demo

Everything follows from --seed; the same machine, versions and thread count give the same bits.
A run that is interrupted goes on from the last checkpoint in --work.
"""
import argparse
import json
import pathlib
import random
import time

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM

import chats
import stories

HERE = pathlib.Path(__file__).parent
SPECIAL = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>", "<|pad|>")
BOS, EOS, IM_START, IM_END, PAD = range(5)
CONTEXT = 2048
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 2048,
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "hidden_act": "silu",
    "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
    "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True,
    "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "torch_dtype": "bfloat16",
}
GENERATION = {"bos_token_id": BOS, "eos_token_id": [EOS, IM_END], "pad_token_id": PAD,
              "do_sample": True, "temperature": 0.7, "top_p": 0.95}
STORY_SHARE = 0.3
STEP_TOKENS = 2048
# The curriculum. Stories alone teach far too slowly to do what a prompt asks for: their own words are easy to guess. So the
# first steps see random tokens twice, of which the second time is to be copied. Then come requests with the beginnings of
# their answers, where nothing but what was asked for is hard to guess. Later steps keep some of both, lest they are forgotten.
COPY_STEPS, COPY_LENGTH, COPIES_EVERY = 300, 128, 10
REQUEST_STEPS, REQUEST_LENGTH, REQUESTS_EVERY = 1300, 64, 2
# Short sequences first: where a story's beginning is all there is to look at, a name is soon found.
STARTS_STEPS, STARTS_LENGTH = 200, 128
LONG_EVERY = 4  # later, one step in four sees whole contexts, the others SHORT_LENGTH
SHORT_LENGTH = 512
WARM_UP, DECAY_SHARE = 40, 0.6
NOT_LEARNT = -100  # what cross_entropy leaves out


def make_document(rng):
    """One training text in the form the tokenizer takes, without its beginning-of-text token."""
    if rng.random() < STORY_SHARE:
        return stories.make_story(rng)[0]
    return chats.render(chats.make_chat(rng))


def train_tokenizer(seed):
    """Byte-level BPE: every byte is in the vocabulary, so any text can be said."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"], special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    rng = random.Random(seed)
    tokenizer.train_from_iterator((make_document(rng) for _ in range(8000)), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", pair="<|bos|> $A $B", special_tokens=[("<|bos|>", BOS)])
    return tokenizer


def write_texts(out, tokenizer):
    """All files of the model but its weights."""
    tokenizer.save(str(out / "tokenizer.json"))
    template = (HERE / "chat_template.jinja").read_text()
    (out / "chat_template.jinja").write_text(template)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>",
        "eos_token": "<|eos|>", "pad_token": "<|pad|>", "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False, "chat_template": template,
        "added_tokens_decoder": {
            str(i): {"content": name, "lstrip": False, "normalized": False, "rstrip": False,
                     "single_word": False, "special": True} for i, name in enumerate(SPECIAL)},
    }
    for name, value in (("tokenizer_config.json", config), ("config.json", CONFIG),
                        ("generation_config.json", GENERATION)):
        (out / name).write_text(json.dumps(value, indent=2) + "\n")


def load_tokenizer(args):
    """The committed one, so that a new training leaves the ids of every text as they are, or with --new-tokenizer another."""
    return train_tokenizer(args.seed) if args.new_tokenizer else Tokenizer.from_file(str(HERE / "tokenizer.json"))


def encode_documents(tokenizer, seed):
    """Yields documents without end, each <|bos|> text <|eos|>."""
    rng = random.Random(seed)
    while True:
        for code in tokenizer.encode_batch([make_document(rng) for _ in range(500)]):
            yield code.ids + [EOS]


def copy_batch(rng):
    """Each row is a run of random tokens and the same run again, of which only the second is learnt."""
    half = COPY_LENGTH // 2
    rows = [[rng.randrange(len(SPECIAL), CONFIG["vocab_size"]) for _ in range(half)]
            for _ in range(STEP_TOKENS // COPY_LENGTH)]
    inputs = torch.tensor([row + row for row in rows])
    targets = inputs.clone()
    targets[:, :half] = NOT_LEARNT
    return inputs, targets


def request_batch(tokenizer, rng):
    """Each row is a request and the beginning of its answer, of which only the answer is learnt."""
    inputs = torch.full((STEP_TOKENS // REQUEST_LENGTH, REQUEST_LENGTH), PAD)
    targets = torch.full_like(inputs, NOT_LEARNT)
    for row in range(len(inputs)):
        (_, request), (_, answer) = chats.make_request(rng)
        asked = tokenizer.encode("<|bos|>" + chats.render([("user", request)], generation=True), add_special_tokens=False).ids
        ids = (asked + tokenizer.encode(answer, add_special_tokens=False).ids + [IM_END])[:REQUEST_LENGTH]
        inputs[row, :len(ids)] = torch.tensor(ids)
        targets[row, len(asked):len(ids)] = inputs[row, len(asked):len(ids)]
    return inputs, targets


def sequence_length(step):
    if step < COPY_STEPS + REQUEST_STEPS + STARTS_STEPS:
        return STARTS_LENGTH
    return CONTEXT if step % LONG_EVERY == LONG_EVERY - 1 else SHORT_LENGTH


def text_batch(documents, length):
    """Each row begins with a document; none is used twice."""
    rows = []
    while len(rows) < STEP_TOKENS // length:
        row = []
        while len(row) < length:
            row += next(documents)
        rows.append(row[:length])
    return torch.tensor(rows), torch.tensor(rows)


def make_batches(tokenizer, seed, first, last):
    """Yields each step's tokens and targets."""
    documents, rng = encode_documents(tokenizer, seed + 1), random.Random(seed + 2)
    for step in range(last):
        if step < COPY_STEPS or step % COPIES_EVERY == 1:
            batch = copy_batch(rng)
        elif step < COPY_STEPS + REQUEST_STEPS or step % REQUESTS_EVERY == 0:
            batch = request_batch(tokenizer, rng)
        else:
            batch = text_batch(documents, sequence_length(step))
        if step >= first:
            yield batch


def make_model():
    """The untrained model. Its embeddings are as large as what its blocks will write, so that every
    layer still sees which token stands where: a model that can't see that can't copy a name. The
    head shares the embeddings, therefore the last norm makes up for their size."""
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).float()
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_()
        model.model.norm.weight.fill_(0.03)
        for layer in model.model.layers:
            torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
            torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    return model


def learning_rate(step, steps, peak):
    """Linear warm-up, a plateau, and a straight line down: only its last part knows the end."""
    decay = int(steps * DECAY_SHARE)
    return peak * min(1.0, (step + 1) / WARM_UP, 0.01 + (steps - step) / decay)


class Optimizer:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms.

    At this size and budget Muon reaches a loss in half the steps that AdamW alone needs.
    """

    def __init__(self, model):
        inner, writers, norms = [], [], []
        for name, p in model.named_parameters():
            if p.ndim < 2:
                norms.append(p)
            elif ".layers." in name:
                (writers if "o_proj" in name or "down_proj" in name else inner).append(p)
        self.parts = (
            torch.optim.Muon(
                [{"params": inner, "scale": 1.0}, {"params": writers, "scale": 0.3}],
                momentum=0.95, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(
                [{"params": [model.model.embed_tokens.weight], "scale": 2.0},
                 {"params": norms, "scale": 0.3}],
                betas=(0.9, 0.97), eps=1e-9, weight_decay=0.0))

    def step(self, rate):
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate * group["scale"]
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self):
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states):
        for part, state in zip(self.parts, states):
            part.load_state_dict(state)


def train(model, tokenizer, args):
    """Runs all steps and returns seconds and the mean loss of the last hundred."""
    optimizer = Optimizer(model)
    path = args.work / "checkpoint.pt"
    first, seconds, losses = 0, 0.0, []
    if path.exists():
        state = torch.load(path, weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, seconds, losses = state["step"], state["seconds"], state["losses"]
    begin = time.monotonic() - seconds
    for step, (tokens, targets) in enumerate(make_batches(tokenizer, args.seed, first, args.steps), first):
        logits = model(input_ids=tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(learning_rate(step, args.steps, args.peak))
        losses.append(loss.item())
        seconds = time.monotonic() - begin
        if step % 25 == 24:
            print(f"step {step + 1}/{args.steps} loss {sum(losses[-25:]) / 25:.4f} "
                  f"{seconds:.0f} s", flush=True)
        if step % 50 == 49:
            torch.save({"step": step + 1, "seconds": seconds,
                        "losses": losses, "model": model.state_dict(),
                        "optimizer": optimizer.state_dict()}, path)
    return seconds, sum(losses[-100:]) / len(losses[-100:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=7000)
    parser.add_argument("--peak", type=float, default=5e-3, help="highest learning rate")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--new-tokenizer", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    args.work.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(args)
    write_texts(args.out, tokenizer)
    model = make_model()
    count = sum(p.numel() for p in model.parameters())
    print(f"{count} parameters", flush=True)
    seconds, loss = train(model, tokenizer, args)
    weights = {name: value.to(torch.bfloat16).contiguous()
               for name, value in model.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, str(args.out / "model.safetensors"), metadata={"format": "pt"})
    record = {"parameters": count, "steps": args.steps, "tokens": args.steps * STEP_TOKENS, "seed": args.seed,
              "threads": args.threads, "seconds": round(seconds), "final_loss": round(loss, 4)}
    (args.out / "training.json").write_text(json.dumps(record, indent=2) + "\n")
    print(record)


if __name__ == "__main__":
    main()
