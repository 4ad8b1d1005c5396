"""Prefix-aware against round robin on real CPU workers: groups of requests that begin alike, more of them than one
worker can keep and fewer than all can. The two policies take turns, each with workers of its own that start empty."""
import asyncio
import collections
import json
import pathlib
import random
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fault"))
from client import Answer, ask  # noqa: E402
from fleet import Fleet  # noqa: E402

POLICIES = ("prefix-aware", "round-robin")
WORKERS, BLOCK, PAGE_BYTES = 4, 16, 64 << 10  # a page of the demo model
PREFIX, QUESTION, OUTPUT = 2000, 16, 8        # tokens; the demo model's context is 2,048


class Counted(Answer):
    def __init__(self):
        super().__init__()
        self.usage = None

    def take(self, event):
        self.usage = event.get("usage") or self.usage
        super().take(event)


class Oracle:
    """One cache with the room of all workers that knows every request before it comes: what of each it would have."""

    def __init__(self, blocks):
        self.room, self.held = blocks, collections.OrderedDict()

    def cached(self, prompt):
        chain, held = (), 0
        chains = []
        for end in range(BLOCK, len(prompt) + 1, BLOCK):
            chain = hash((chain, tuple(prompt[end - BLOCK:end])))
            chains.append(chain)
        limit = (len(prompt) - 1) // BLOCK
        while held < limit and chains[held] in self.held:
            held += 1
        for chain in reversed(chains):  # the end of a chain goes before its beginning
            self.held[chain] = None
            self.held.move_to_end(chain)
        while len(self.held) > self.room:
            self.held.popitem(last=False)
        return held * BLOCK


def sequence(groups, requests, seed):
    """The first request of each group, and then groups at random: prompts of token ids."""
    draw = random.Random(seed)
    ids = lambda count: [draw.randrange(512, 2048) for _ in range(count)]  # noqa: E731
    prefixes = [ids(PREFIX) for _ in range(groups)]
    order = list(range(groups)) + [draw.randrange(groups) for _ in range(requests)]
    return [prefixes[group] + ids(QUESTION) for group in order]


async def closed_loop(port, prompts, clients):
    """So many clients, each with one request after the other. Answers in the order of the prompts, and seconds."""
    answers, turn = [None] * len(prompts), iter(range(len(prompts)))

    async def client():
        for i in turn:
            body = {"model": "demo", "prompt": prompts[i], "max_tokens": OUTPUT, "ignore_eos": True, "temperature": 0,
                    "seed": 1, "stream_options": {"include_usage": True}}
            begin = asyncio.get_running_loop().time()
            answer = await ask(port, body, answer=Counted())
            if answer.error or not answer.done:
                raise SystemExit(f"policies: a request failed, the run is void: {answer.status} {answer.error}")
            answer.first = answer.times[0] - begin
            answers[i] = answer
    begin = time.monotonic()
    await asyncio.gather(*(client() for _ in range(clients)))
    return answers, time.monotonic() - begin


def pages_of(worker):
    for line in worker.process.lines:
        if '"memory plan"' in line:
            return json.loads(line)["pages"]
    raise SystemExit("policies: a worker that tells no memory plan")


async def one_run(policy, groups, requests, pages, prompts):
    async with Fleet(WORKERS, router_flags=(f"--routing-policy={policy}",),
                     worker_flags=(f"--kv-cache-memory-bytes={pages * PAGE_BYTES}",)) as fleet:
        if any(pages_of(worker) != pages for worker in fleet.workers):
            raise SystemExit("policies: a page is not of the size that this file believes")
        port = fleet.router.port
        oracle = Oracle(WORKERS * pages)
        wanted = [oracle.cached(prompt) for prompt in prompts]
        warm, calm, full = prompts[:groups], prompts[groups:groups + requests], prompts[groups + requests:]
        await closed_loop(port, warm, WORKERS)
        calm_answers, _ = await closed_loop(port, calm, WORKERS)
        full_answers, seconds = await closed_loop(port, full, 4 * WORKERS)
        answers = calm_answers + full_answers
        cached = sum(a.usage["prompt_tokens_details"]["cached_tokens"] for a in answers)
        wrong = fleet.router.metric('quire_router_cache_predictions_total{verdict="wrong"}')
        if wrong:
            raise SystemExit(f"policies: {wrong} predictions were wrong, the run is void")
        return {"first_token_ms_mean": 1000 * statistics.mean(a.first for a in calm_answers),
                "requests_per_second": len(full) / seconds,
                "first_token_ms_mean_saturated": 1000 * statistics.mean(a.first for a in full_answers),
                "hit_rate": cached / sum(a.usage["prompt_tokens"] for a in answers),
                "hit_rate_over_oracle": cached / sum(wanted[groups:])}


def run(cycles, small):
    """Rows by policy, and what was run."""
    groups, requests = (12, 24) if small else (64, 128)
    # Each worker keeps a third of the groups, all of them a third more than there are.
    pages = (PREFIX // BLOCK) * groups // 3 + 64
    rows = {policy: [] for policy in POLICIES}
    for cycle in range(cycles):
        prompts = sequence(groups, 2 * requests, cycle)
        for policy in POLICIES if cycle % 2 == 0 else reversed(POLICIES):
            begin = time.monotonic()
            rows[policy].append(asyncio.run(one_run(policy, groups, requests, pages, prompts)))
            print(f"cycle {cycle + 1}, {policy}, {time.monotonic() - begin:.0f} s: {json.dumps(rows[policy][-1])}",
                  flush=True)
    workload = (f"{WORKERS} workers of one thread, demo model, {groups} groups of shared {PREFIX}-token prefixes, "
                f"{QUESTION} tokens of each request's own, {OUTPUT} written, {pages} pages of {BLOCK} tokens at each "
                f"worker; after one request of each group {requests} of groups at random from {WORKERS} clients (time "
                f"to first token) and {requests} from {4 * WORKERS} (saturation), each client one after the other; "
                "nothing is shed")
    return rows, workload
