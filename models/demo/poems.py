"""Four lines about a hero: a couplet that names it, one or two in between, and one that ends.

A couplet is two lines that rhyme; its slots are those of stories.
"""
from engine import fill, polish
from stories import choose_slots

FIRST = (
    "There was a^ {kind} [so small and bright|with eyes so bright]\nwho [danced|sang] all day and slept all night.",
    "A^ {adj} {kind} came out to play\nupon a [warm and sunny|bright and windy|cool and cloudy] day.",
    "A^ {kind} sat down beside a tree\nand said, \"[How good|How nice] it is to be!\"",
    "The {kind} woke up and rubbed {his} eyes\nand [looked|smiled] into the morning skies.",
    "I know a^ {kind} who likes to sing\nof snow and sun and [early|gentle] spring.",
)
FIRST_NAMED = (
    "{N} the {kind} came out to play\nupon a [warm and sunny|bright and windy|cool and cloudy] day.",
    "I know a^ {kind}, {N} is {his} name,\nand hide and seek is {his} [favorite|favourite] game.",
    "{N} the {kind} woke up at eight\nand [ran|jumped] right through the garden gate.",
    "A^ {adj} {kind}, {N} by name,\n[went out to play|was playing] a {adj2} game.",
)
PLACED = (
    "{^at} {he} [sang|hummed] a song,\nand all the birds there sang along.",
    "{^at} {he} found a ball\nand kicked it high above the wall.",
    "{^at} the wind was mild,\nand {he} was happy like a child.",
)
MIDDLE = (
    "{He} wore a hat, {he} wore a shoe,\nand one was red and one was blue.",
    "{He} ate some {food}, {he} drank some tea,\nand counted up to twenty-three.",
    "The wind was soft, the clouds were white,\nthe world was full of [golden|morning] light.",
    "{He} met a friend along the way,\nand they were [merry|happy] all the day.",
    "{He} jumped so high, {he} ran so fast,\nand watched the little clouds go past.",
)
LAST = (
    "And when the day was nearly done,\nthe {kind} [waved goodbye to|said good night to] the sun.",
    "Now close your eyes and go to bed,\n[the moon is shining on your head|sweet dreams are waiting in your head].",
    "And when the stars were in the sky,\nthe {kind} went home and said goodbye.",
    "Good night, dear {kind}, the day was long.\nTomorrow we will sing {his} song.",
)


def make_poem(rng, **given):
    """A poem's text; `given` may fix kind, name and place."""
    slots, named = choose_slots(rng, given)
    named = "name" in given or named and rng.random() < 0.3
    if named:
        slots["N"] = slots["called2"]
    lines = [rng.choice(FIRST_NAMED if named else FIRST)]
    if "place" in given:
        lines.append(rng.choice(PLACED))
    if "place" not in given or rng.random() < 0.4:
        lines.append(rng.choice(MIDDLE))
    lines.append(rng.choice(LAST))
    return "\n".join(line[:1].upper() + line[1:] for line in polish(fill(rng, "\n".join(lines), slots)).split("\n"))
