"""Speculation and forced tokens change nothing that a client sees: each answer is, to the bit, the one of workers
without them, also while workers are killed."""
import asyncio
import random

from client import requests
from faults_test import all_of, kill_at, nothing_is_held, same, undisturbed
from fleet import Fleet
from harness import expect

NGRAM = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}'
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
FORCED = "quire_worker_accepted_forced_tokens_total"
# Much of an answer is forced: the names, and the values that begin alike.
SCHEMA = {"type": "object", "properties": {
    "identification": {"enum": ["a very long value that follows", "a very long value that precedes"]},
    "quantity of things": {"type": "integer", "minimum": 0, "maximum": 999},
    "the last property": {"type": "string", "maxLength": 8}},
    "required": ["identification", "quantity of things", "the last property"], "additionalProperties": False}


def copying(count, seed, max_tokens=48):
    """Prompts whose answers repeat them, in part."""
    draw = random.Random(seed)
    text = "The little dog ran to the big red ball. The girl saw the little dog. "
    return [{"model": "demo", "prompt": text * (2 + i % 3), "temperature": draw.choice([0, 0, 0.3]), "ignore_eos": True,
             "seed": draw.getrandbits(40), "max_tokens": max_tokens, "logprobs": 1} for i in range(count)]


def constrained(count, seed):
    draw = random.Random(seed)
    return [{"model": "demo", "prompt": "A thing: ", "temperature": draw.choice([0, 1.0]), "seed": draw.getrandbits(40),
             "max_tokens": 120, "logprobs": 1, "structured_outputs": {"json": SCHEMA, "disable_any_whitespace": i % 2 == 0}}
            for i in range(count)]


DRAFT_MODEL = '{"method": "draft_model", "model": "demo", "num_speculative_tokens": 4}'
LAYER_SKIP = '{"method": "layer_skip", "skip_layers": [2], "num_speculative_tokens": 2}'


async def nothing_shows():
    bodies = requests(12, seed=31) + copying(12, seed=31) + constrained(8, seed=31)
    async with Fleet(workers=1, worker_flags=("--no-forced-tokens",)) as plain:
        wanted = await undisturbed(plain, bodies)
        expect(await plain.workers[0].metric(ACCEPTED) == 0, "nothing is drafted without --speculative-config")
        expect(await plain.workers[0].metric(FORCED) == 0, "nothing is forced with --no-forced-tokens")
    async with Fleet(workers=2, worker_flags=(f"--speculative-config={NGRAM}",)) as fleet:
        same(bodies, await all_of(fleet.router.port, bodies), wanted, "drafted")
        accepted = sum([await worker.metric(ACCEPTED) for worker in fleet.workers])
        expect(accepted >= 10, f"drafts were accepted: {accepted}")  # How many depends on who shares a step with whom.
        forced = sum([await worker.metric(FORCED) for worker in fleet.workers])
        expect(forced >= 40, f"forced tokens came together: {forced}")
        for turn, k in enumerate((1, 7, 19)):
            await kill_at(fleet, fleet.workers[turn % 2], bodies, wanted, k)
        await nothing_is_held(fleet)
        print(f"{accepted:.0f} drafted and {forced:.0f} forced tokens accepted in {len(bodies)} answers")

    # A second model of the very same weights is right about every token whose row draws as it does.
    for config, least, kills in ((DRAFT_MODEL, 200, (2, 11)), (LAYER_SKIP, 20, (5,))):
        async with Fleet(workers=2, worker_flags=(f"--speculative-config={config}", "--no-forced-tokens")) as fleet:
            same(bodies, await all_of(fleet.router.port, bodies), wanted, config)
            accepted = sum([await worker.metric(ACCEPTED) for worker in fleet.workers])
            expect(accepted >= least, f"{config}: {accepted} drafts were accepted")
            for turn, k in enumerate(kills):
                await kill_at(fleet, fleet.workers[turn % 2], bodies, wanted, k)
            await nothing_is_held(fleet)
            print(f"{accepted:.0f} tokens of a draft model accepted")


def test_answers_are_those_without_speculation_through_kills():
    asyncio.run(nothing_shows())
