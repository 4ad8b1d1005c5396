"""Expands the grammar: [a|b] is a choice, {slot} a value, {^slot} the value with a capital.

A line of a plot is one variant of one beat; `a^` becomes "a" or "an" by the word that follows.
"""
import re

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\^?)(\w+)\}")
_ARTICLE = re.compile(r"\b([aA])\^(\s+)(\w+)")
_AN = re.compile(r"(?!uni|use|one|euro)[aeiou]|hour|honest")
_START = re.compile(r'(^|[.!?]\s+|[.]"\s+|\n)([a-z])')
_QUOTE = re.compile(r'((?:^|(?<!,)\s)")([a-z])')


def parse_beats(text):
    """Splits a plot into beats (blank line between), each (chance, [variants])."""
    beats = []
    for block in text.strip().split("\n\n"):
        lines = [line.strip() for line in block.strip().splitlines()]
        chance = 1.0
        if lines[0].startswith("?"):
            chance = float(lines.pop(0)[1:])
        beats.append((chance, join_continued(lines)))
    return beats


def join_continued(lines):
    """A line that ends with a backslash goes on in the next one."""
    out, part = [], ""
    for line in lines:
        if line.endswith("\\"):
            part += line[:-1].rstrip() + " "
        else:
            out.append(part + line)
            part = ""
    return out


def capital(text):
    return text[:1].upper() + text[1:]


def fill(rng, text, slots):
    """Resolves choices and slots until none is left; nested ones resolve inside out."""
    for _ in range(20):
        before = text
        text = _CHOICE.sub(lambda m: rng.choice(m.group(1).split("|")), text)
        text = _SLOT.sub(
            lambda m: capital(slots[m.group(2)]) if m.group(1) else slots[m.group(2)], text)
        if text == before:
            break
    return text


def polish(text):
    """Articles, capitals at the start of sentences, single spaces."""
    text = _ARTICLE.sub(
        lambda m: m.group(1) + ("n" if _AN.match(m.group(3).lower()) else "") + m.group(2)
        + m.group(3), text)
    text = re.sub(r"[ \t]+(?=[ \t.,\n]|$)", "", text).strip()
    text = _START.sub(lambda m: m.group(1) + m.group(2).upper(), text)
    return _QUOTE.sub(lambda m: m.group(1) + m.group(2).upper(), text)
