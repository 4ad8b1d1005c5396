#!/usr/bin/env python3
"""The story generator: every text that the demo model learns from is made here, from a seed.

A story is an opening, the beats of one plot with a variant chosen for each, and an ending; the
characters, places and things are fixed once per story, so that a reader (or a small model) must
keep them in mind. Run it to read some: `stories.py --count 5 --seed 1`.
"""
import argparse
import random
import re

import plots_common
import plots_one
import plots_three
import plots_two
import words
from engine import fill, parse_beats, polish

PLOTS = {
    name: (table, parse_beats(text))
    for module in (plots_one, plots_two, plots_three)
    for name, (table, text) in (
        (name.lower(), value) for name, value in vars(module).items()
        if name.isupper() and isinstance(value[0], list))
}
COMMON = {name: parse_beats(text) for name, text in vars(plots_common).items() if name.isupper()}

TIMES = ("One day, ", "One morning, ", "One afternoon, ", "One day ", "One sunny day, ",
         "One summer day, ", "One evening, ", "Then one day, ", "One cold morning, ")
LIVED = ("{He} lived in a^ {home} {at}.", "{He} lived {at}. {sight1}",
         "{His} home was a^ {small} {home} {at}.", "{He} lived in a^ {home}. {sight1}",
         "{He} had a^ {small} {home} {at}.")
DEEP = {"the forest": "deep in the forest", "the mountain": "high up on the mountain",
        "the island": "far away on the island", "the sea": "far away by the sea"}
MAGIC = ("a tiny fairy", "a blue spirit", "a golden fish", "a little green elf", "a silver bird",
         "a friendly ghost")
PRONOUNS = {"f": ("she", "her", "her", "herself"), "m": ("he", "his", "him", "himself")}


def make_name(rng):
    """A name that is in no list; some are made of any letters, so that only copying gets them right."""
    if rng.random() < 0.4:
        parts = (rng.choice("bcdfghjklmnprstvwyz") + rng.choice("aeiou") for _ in range(rng.randint(1, 3)))
        return ("".join(parts) + rng.choice(("", "l", "n", "r", "s", "k", "m", "th", "ck", "ng"))).capitalize()
    name = rng.choice(words.NAME_HEADS)
    if rng.random() < 0.8:
        name += rng.choice(words.NAME_MIDDLES)
    return name + rng.choice(words.NAME_TAILS)


def choose_person(rng, kind=None, name=None):
    """Returns kind, home, food, name (None for nobody named) and sex."""
    if kind is None:
        table = rng.choices((words.ANIMALS, words.WONDERS, words.CHILDREN), (60, 20, 20))[0]
        kind, home, food = rng.choice(table)
    else:
        every = words.ANIMALS + words.WONDERS + words.CHILDREN
        known = [row for row in every if row[0] == kind]
        kind, home, food = rng.choice(known) if known else (kind, "house", "apples")
    sex = "f" if kind in words.FEMALE else "m" if kind in words.MALE else rng.choice("fm")
    if name is None and rng.random() < 0.1:
        name = make_name(rng)
    if name in words.GIRLS and kind not in words.MALE:
        sex = "f"
    elif name in words.BOYS and kind not in words.FEMALE:
        sex = "m"
    name = name or rng.choice(words.GIRLS if sex == "f" else words.BOYS)
    return kind, home, food, name, sex


def person_slots(rng, slots, prefix, person, named):
    """Puts a person's name, kind and pronouns under `prefix` ('' for the hero, 'f' the friend)."""
    kind, home, food, name, sex = person
    he, his, him, self = PRONOUNS[sex]
    slots.update({prefix + "kind": kind, prefix + "he": he, prefix + "his": his,
                  prefix + "him": him, prefix + "himself": self, prefix + "home": home,
                  prefix + "food": food})
    if prefix == "":
        slots.update(He=he.capitalize(), His=his.capitalize(), N=name if named else f"the {kind}")
        slots["called"] = rng.choice(("named ", "called ", "whose name was ")) + name
        slots["called"] = slots["called"] if named else ""
        slots["called2"] = name
    else:
        slots["F"] = name if named else f"the {kind}"


def goes_to(place):
    """Where one goes: "to the sea"; "to" takes the place of the word that says where one is."""
    where, _, rest = place.partition(" ")
    return "to " + (rest if where in ("in", "on", "at", "by", "under") else place)


def choose_place(rng, given):
    """A row of words.PLACES, or one made of what was asked for: "in the desert"."""
    rows = [p for p in words.PLACES if given.get("place") in (None, p[0])]
    if rows:
        return rng.choice(rows)
    return given["place"], given["place"], words.ANY_SPOTS, words.ANY_SIGHTS


def choose_slots(rng, given):
    """Fixes everything that stays the same within one story."""
    slots = {}
    hero = choose_person(rng, given.get("kind"), given.get("name"))
    named = "name" in given or hero[0] in ("girl", "boy", "child") or rng.random() < 0.85
    friend = choose_person(rng, given.get("friend"))
    while friend[3] == hero[3] or (friend[0] == hero[0] and "friend" not in given):
        friend = choose_person(rng, given.get("friend"))
    person_slots(rng, slots, "", hero, named)
    friend_named = friend[0] == hero[0] or friend[0] in ("girl", "boy", "child")
    friend_named = friend_named or rng.random() < 0.8
    person_slots(rng, slots, "f", friend, friend_named)
    slots["adj"], adj2, slots["adj2"] = rng.sample(words.ADJECTIVES, 3)
    slots["small"] = rng.choice(("small", "little", "cozy", "tiny"))
    slots["fintro"] = (
        rng.choice((f"a^ {adj2} {friend[0]}", f"a^ {friend[0]}")) +
        (rng.choice((" named ", " called ")) + friend[3] if friend_named else ""))
    place = choose_place(rng, given)
    spots, sights = rng.sample(place[2], 3), rng.sample(place[3], 2)
    slots.update(place=place[0], at=place[1], there=goes_to(place[0]), spot1=spots[0],
                 deep=DEEP.get(place[0], "somewhere " + place[1]), spot2=spots[1],
                 spot3=spots[2], sight1=sights[0], sight2=sights[1])
    elder = rng.choice(words.ELDERS)
    slots.update(E=fill(rng, elder[0], slots), ehe=elder[1], ehis=elder[2], ehim=elder[3])
    slots["junk1"], slots["junk2"] = rng.sample(words.JUNK, 2)
    slots.update(obj=given.get("obj") or rng.choice(words.OBJECTS), treat=rng.choice(words.TREATS),
                 food2=rng.choice(("bread", "soup", "pancakes", "apples", "cheese")),
                 game=rng.choice(words.GAMES), magic=rng.choice(MAGIC))
    return slots, named


def choose_opening(rng, named):
    """Returns the opening and whether it already says when."""
    scene = rng.random() < 0.45
    variants = COMMON["OPEN_SCENE" if scene else "OPEN_STATIC"][0][1]
    if not named:
        variants = [v for v in variants if "{N}" not in v and "{called2}" not in v]
    return rng.choice(variants), scene


def make_story(rng, **given):
    """One story; `given` may fix kind, name, friend, place, obj and plot.

    Returns the text and the slots, so that questions about it can be answered.
    """
    plot = given.get("plot") or rng.choice(list(PLOTS))
    table, beats = PLOTS[plot]
    row = dict(rng.choice([r for r in table if "only" not in r or given.get("place") in (
        None, *r["only"])]))
    only = row.pop("only", None)
    if only and "place" not in given:
        given["place"] = rng.choice(only)
    slots, named = choose_slots(rng, given)
    slots.update({k: fill(rng, v, slots) for k, v in row.items()})
    slots["lived"] = rng.choice(LIVED)
    opening, scene = choose_opening(rng, named)
    slots["T"] = rng.choice(("", "", "Then ")) if scene else rng.choice(TIMES)
    slots["T2"] = rng.choice(("one day ", "one morning ", "one rainy day "))
    lines = [opening]
    scenery_at = rng.randrange(2, max(3, len(beats) - 2))
    for index, (chance, variants) in enumerate(beats):
        if index == 0:
            lines += optional(rng, COMMON["HABIT"])
        if index == scenery_at:
            lines += optional(rng, COMMON["SCENERY"])
        if rng.random() < chance:
            lines.append(rng.choice(variants))
    lines += optional(rng, COMMON["ENDING"]) + optional(rng, COMMON["CLOSING"])
    paragraphs = rng.random() < 0.5
    text = ""
    for index, line in enumerate(lines):
        gap = "\n\n" if paragraphs and index and index % 3 == 0 else " "
        text += (gap if text else "") + fill(rng, line, slots).strip()
    slots["plot"], slots["named"] = plot, named
    return polish(text), slots


def optional(rng, beats):
    return [rng.choice(variants) for chance, variants in beats if rng.random() < chance]


def count_frames():
    """Distinct sentence frames: every choice taken and the plot's own table filled in, but
    characters, places and things left open."""
    total = 0
    plots = list(PLOTS.values()) + [([{}], beats) for beats in COMMON.values()]
    for table, beats in plots:
        own = {key for row in table for key in row}
        variants = [v for _, beat in beats for v in beat]
        for sentence in (s for v in variants for s in re.split(r"(?<=[.!?]) ", v)):
            count = len(table) if own & set(re.findall(r"\{\^?(\w+)\}", sentence)) else 1
            for group in re.findall(r"\[([^\[\]]*)\]", sentence):
                count *= group.count("|") + 1
            total += count
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", choices=sorted(PLOTS))
    args = parser.parse_args()
    rng = random.Random(args.seed)
    for _ in range(args.count):
        text, slots = make_story(rng, **({"plot": args.plot} if args.plot else {}))
        print(f"--- {slots['plot']}\n{text}\n")
    print(f"{len(PLOTS)} plots, {count_frames()} sentence frames")


if __name__ == "__main__":
    main()
