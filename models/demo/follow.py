#!/usr/bin/env python3
"""Measures how often the demo model does what it is asked for: 200 prompts that its training never saw.

    quire serve demo &
    follow.py [--url http://127.0.0.1:8000] [--temperature 0] [--show]

An answer follows its prompt if every word that was asked for is in it: the hero, its name, the place. The sentences, the
names and a seventh of the heroes and places below are in no text of the training. Exit code 1 below --least.
"""
import argparse
import concurrent.futures
import json
import random
import re
import sys
import urllib.request

COUNT, SEED = 200, 4711
TOKENS = 160  # of an answer: what was asked for stands at its beginning
AT_ONCE = 16
KNOWN = """fox rabbit mouse bear owl hedgehog duck frog cat dog turtle badger deer goat pig horse penguin elephant lion monkey
wolf bee snail crow kitten dragon robot giant wizard fairy princess knight pirate witch king mermaid tiger dinosaur ghost
astronaut teapot whale""".split()
NEW_KINDS = "lynx mongoose tapir marmot chipmunk platypus plumber wagon lantern yeti stingray".split()
NAMES = """Greta Ingrid Pablo Yusuf Kenji Dora Walter Frida Amir Nils Olga Priya Ramon Selma Viktor Agnes Bruno Cleo Dario Emil
Fatima Gustav Helga Ines Jonas Kira Lars Mona Pedro Quentin""".split()
PLACES = """in the forest, by the river, in the garden, on the mountain, near the castle, on the island, in the desert, on the moon,
in the jungle, in the kitchen, at school, in the library, on a farm, in space""".replace("\n", " ").split(", ")
NEW_PLACES = "in Berlin, in the bathroom, on the balcony, in the canyon, at the airport".split(", ")
ASK = (
    "Please tell me the story of {topic}.", "I'd love a story about {topic}!", "Could you write a little story about {topic}?",
    "We want to hear about {topic} tonight.", "Write a bedtime story about {topic}, please.", "Story time: {topic}.",
    "Make up a story for my son about {topic}.",
)
ASK_POEM = ("Please write a little poem about {topic}.", "Could you make a poem about {topic}?", "Write a short rhyme about {topic}, please.")


def prompts():
    """(prompt, the words that its answer must have) for each."""
    rng = random.Random(SEED)
    for number in range(COUNT):
        kind = rng.choice(NEW_KINDS if rng.random() < 0.15 else KNOWN)
        topic, asked = ("an " if kind[0] in "aeiou" else "a ") + kind, [kind]
        if number % 3 == 1:
            asked.append(rng.choice(NAMES))
            topic += rng.choice((" named ", " called ")) + asked[-1]
        elif number % 3 == 2:
            place = rng.choice(NEW_PLACES if rng.random() < 0.15 else PLACES)
            asked.append(place.split()[-1])
            topic += " " + place
        yield rng.choice(ASK_POEM if number % 5 == 4 else ASK).format(topic=topic), asked


def follows(asked, answer):
    return all(re.search(rf"\b{word}\b", answer, re.I) for word in asked)


def ask(url, prompt, temperature):
    body = {"model": "demo", "messages": [{"role": "user", "content": prompt}], "max_tokens": TOKENS, "temperature": temperature,
            "seed": 1}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--least", type=int, default=180, help="answers of 200 that must follow")
    parser.add_argument("--show", action="store_true", help="prints what does not follow")
    args = parser.parse_args()
    wishes = list(prompts())
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda wish: ask(args.url, wish[0], args.temperature), wishes))
    followed = 0
    for (prompt, asked), answer in zip(wishes, answers):
        followed += follows(asked, answer)
        if args.show and not follows(asked, answer):
            print(f"{prompt}\n  {asked}: {answer[:300]!r}")
    print(f"{followed} of {COUNT} answers follow their prompt")
    return 0 if followed >= args.least else 1


if __name__ == "__main__":
    sys.exit(main())
