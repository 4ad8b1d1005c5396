"""Clients that lost their router between any two events and go on at another one, as `resume` of the API has it. Both
parts together are the whole answer: tokens, text, logprobs, ends."""
import asyncio
import random

from client import Answer, ask, constrained, requests
from fleet import Fleet
from harness import expect

CUTS = 8  # of each answer; its last event is always one of them


class Kept(Answer):
    """Keeps the events themselves, so that an answer can be cut between them."""

    def __init__(self):
        super().__init__()
        self.events = []

    def take(self, event):
        super().take(event)
        self.events.append(event)


def cut(answer, events):
    begun = Answer()
    for event in answer.events[:events]:
        begun.take(event)
    return begun


async def goes_on(port, body, whole, events):
    begun = cut(whole, events)
    rest = await ask(port, {**body, "resume": {
        **whole.resume, "outputs": [{"token_ids": begun.tokens.get(i, [])} for i in range(body.get("n", 1))]}})
    where = f"{body} after {events} of {len(whole.events)} events"
    expect(rest.done and not rest.error, f"{where}: {rest.status} {rest.error}")
    for i in whole.tokens:
        if i in begun.finish:  # its end was told, and is told again
            expect(not rest.tokens.get(i) and rest.finish[i] == begun.finish[i], f"{where}: {rest.result()}")
            continue
        for had, more, wanted in ((begun.tokens, rest.tokens, whole.tokens),
                                  (begun.logprobs, rest.logprobs, whole.logprobs)):
            expect(had.get(i, []) + more.get(i, []) == wanted.get(i, []), f"{where}: {had} {more} {wanted}")
        expect(begun.texts.get(i, "") + rest.texts[i] == whole.texts[i], f"{where}: {begun.texts} {rest.texts}")
        expect(rest.finish[i] == whole.finish[i], f"{where}: {rest.finish}")


async def cut_anywhere():
    bodies = requests(14, seed=2, max_tokens=48) + constrained(6, seed=2)
    draw = random.Random(2)
    async with Fleet(workers=2, routers=2) as fleet:
        answers = [await ask(fleet.routers[0].port, body, answer=Kept()) for body in bodies]
        few = asyncio.Semaphore(16)

        async def one(body, whole, events):
            async with few:
                await goes_on(fleet.routers[1].port, body, whole, events)
        cuts = [(body, whole, events) for body, whole in zip(bodies, answers)
                for events in {len(whole.events), *draw.sample(range(1, len(whole.events)), min(CUTS, len(whole.events)) - 1)}]
        await asyncio.gather(*(one(*c) for c in cuts))
        print(f"{len(cuts)} cuts of {len(bodies)} answers")


def test_an_answer_that_is_cut_between_any_two_events_goes_on_to_the_letter():
    asyncio.run(cut_anywhere())
