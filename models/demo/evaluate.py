#!/usr/bin/env python3
"""Accepts or refuses the committed demo model, and writes its golden files.

    evaluate.py            checks against acceptance.json and tests/golden/demo
    evaluate.py --write    writes both from the committed weights (after a new training)

All figures are float32 arithmetic of transformers on the bfloat16 weights, on one thread.
"""
import argparse
import json
import math
import pathlib
import random
import sys

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

import chats
from train import BOS, CONTEXT, EOS, IM_END, make_document

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent.parent / "tests" / "golden" / "demo"
NEAR_TIE = 1e-3
HELD_OUT_SEED = 77_000
PERPLEXITY_MARGIN = 1.02  # over the measured value: room for another arithmetic, not for worse

PROMPTS = (
    "Once upon a time", "One morning a small fox", "One sunny morning, a little rabbit",
    "Long ago, there lived a brave mouse", "There was once a clever crow", "It was a cold",
    "In a tiny house by the sea", "Far away on the island", "Deep in the forest lived",
    "A lonely dragon", "The sleepy bear was called", "Once there was a girl named Mia",
    "Tom was a curious boy", "This is the story of a robot", "Many years ago, a king",
    "High up on the mountain", "Early one morning, an owl", "Late one evening a penguin",
    "On a rainy day", "Lily had a red scarf that she loved",
)
CHATS = (
    [("user", "Tell me a story about a fox.")],
    [("user", "Hello"), ("assistant", "Hello! I am Quire's demo model. Would you like to hear a "
                                      "story?"), ("user", "Who are you?")],
    [("system", "You are a helpful assistant."), ("user", "What can you do?")],
)


def greedy(model, prompt_ids, limit):
    """Returns the ids of the greedy answer and the gap between the two best logits at each."""
    ids, gaps, past = [], [], None
    feed = torch.tensor([prompt_ids])
    while len(ids) < limit:
        result = model(input_ids=feed, past_key_values=past, use_cache=True)
        past = result.past_key_values
        best = result.logits[0, -1].topk(2)
        ids.append(int(best.indices[0]))
        gaps.append(round(float(best.values[0] - best.values[1]), 4))
        if ids[-1] in (EOS, IM_END):
            break
        feed = torch.tensor([[ids[-1]]])
    return ids, gaps


def answer(model, tokenizer, text, prompt_ids, limit):
    ids, gaps = greedy(model, prompt_ids, limit)
    near = [i for i, gap in enumerate(gaps) if gap < NEAR_TIE]
    return {"prompt": text, "prompt_ids": prompt_ids, "output_ids": ids,
            "text": tokenizer.decode(ids, skip_special_tokens=True),
            "min_gap": min(gaps), "min_gap_index": gaps.index(min(gaps)),
            "first_near_tie": near[0] if near else -1, "gaps": gaps}


def make_stories(model, tokenizer):
    told = []
    for index, prompt in enumerate(PROMPTS):
        limit = 60 + (index * 60) // (len(PROMPTS) - 1)
        told.append(answer(model, tokenizer, prompt, tokenizer(prompt).input_ids, limit))
    talks = []
    for chat in CHATS:
        messages = [{"role": role, "content": content} for role, content in chat]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert text == "<|bos|>" + chats.render(chat, generation=True)
        ids = tokenizer(text, add_special_tokens=False).input_ids
        talks.append({"messages": messages, **answer(model, tokenizer, text, ids, 400)})
    return {"note": "written by models/demo/evaluate.py; float32 greedy; gap: best less second "
                    "best logit; first_near_tie: first index with a gap below 0.001, or -1",
            "stories": told, "chats": talks}


def held_out(tokenizer):
    """Texts from a seed that training never used: six of 384 tokens and one full context."""
    rng = random.Random(HELD_OUT_SEED)
    sequences = []
    for length in (384,) * 6 + (CONTEXT,):
        ids = []
        while len(ids) < length:
            ids += tokenizer(make_document(rng)).input_ids + [EOS]
        sequences.append(ids[:length])
    return sequences


def losses(model, ids):
    """Negative log-likelihood of each token after the first, in nats."""
    tokens = torch.tensor([ids])
    logits = model(input_ids=tokens, use_cache=False).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="none")


def make_perplexity(model, sequences):
    each = [losses(model, ids) for ids in sequences]
    every = torch.cat(each)
    return {"note": "written by models/demo/evaluate.py; nll: mean nats of each token after the "
                    "first, float32; perplexity: exp of the mean over all of them",
            "perplexity": round(math.exp(every.mean()), 5),
            "nll": round(float(every.mean()), 6),
            "long_tail_nll": round(float(each[-1][-512:].mean()), 6),
            "sequences": [{"nll": round(float(x.mean()), 6), "ids": ids}
                          for ids, x in zip(sequences, each)]}


def write_json(path, value):
    """One line for each story or sequence, so that a difference can be read."""
    lines = []
    for key, item in value.items():
        if isinstance(item, list):
            inner = ",\n".join(json.dumps(x, ensure_ascii=False, separators=(",", ":"))
                               for x in item)
            lines.append(f"{json.dumps(key)}: [\n{inner}\n]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(item)}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def difference(expected, actual):
    """The first story whose ids differ before a near-tie, as a line of text, or None."""
    for part in ("stories", "chats"):
        for old, new in zip(expected[part], actual[part], strict=True):
            end = old["first_near_tie"] if old["first_near_tie"] >= 0 else None
            if old["prompt_ids"] != new["prompt_ids"]:
                return f"{old['prompt']!r}: prompt ids differ"
            if old["output_ids"][:end] != new["output_ids"][:end]:
                return f"{old['prompt']!r}: got {new['text']!r}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    tokenizer = AutoTokenizer.from_pretrained(HERE)
    model = LlamaForCausalLM.from_pretrained(HERE, dtype=torch.float32)
    assert tokenizer("Hi").input_ids[0] == BOS
    told = make_stories(model, tokenizer)
    measured = make_perplexity(model, held_out(tokenizer))
    print(f"perplexity {measured['perplexity']}, last 512 of {CONTEXT}: "
          f"{measured['long_tail_nll']} nats")
    if args.write:
        GOLDEN.mkdir(parents=True, exist_ok=True)
        write_json(GOLDEN / "stories.json", told)
        write_json(GOLDEN / "perplexity.json", measured)
        bound = round(measured["perplexity"] * PERPLEXITY_MARGIN, 3)
        write_json(HERE / "acceptance.json", {
            "held_out_perplexity_max": bound, "held_out_seed": HELD_OUT_SEED,
            "held_out_tokens": sum(len(s["ids"]) - 1 for s in measured["sequences"]),
            "story_count": len(PROMPTS), "chat_count": len(CHATS), "near_tie_gap": NEAR_TIE})
        return 0
    bound = json.loads((HERE / "acceptance.json").read_text())["held_out_perplexity_max"]
    wrong = difference(json.loads((GOLDEN / "stories.json").read_text()), told)
    if measured["perplexity"] > bound:
        wrong = f"held-out perplexity {measured['perplexity']} is above {bound}"
    print(wrong or "accepted")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
