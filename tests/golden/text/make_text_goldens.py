#!/usr/bin/env python3
"""Writes the expected values of tests/common/text/real_tokenizers_test.cc from the reference libraries.

    pip install transformers==5.23.0 tokenizers==0.23.3 jinja2==3.1.6
    tests/golden/text/fetch_tokenizers.sh && tests/golden/text/fetch_templates.py && python3 tests/golden/text/make_text_goldens.py

Files, all little-endian:
  strings.bin     u32 count; per string u8 kind: 0 = u32 size, bytes; 1 = u64 seed, u32 min_bytes: earlier strings of
                  kind 0 that a generator picks, one after another, until there are min_bytes of them
  ids_NAME.bin    per string u32 count, u64 FNV-1a of the ids with special tokens (4 bytes each), u64 FNV-1a of the
                  decoded text with special tokens kept
  chats.json      conversations; chats_NAME.json: the rendered text of each, null where the template refuses it in words
                  of its own, or false where Python cannot run it
  templates.json  small templates with inputs and what transformers renders
  families.json   by file of .cache/chat-templates: the same, each text as its u64 FNV-1a in hex
"""
import datetime
import json
import pathlib
import random
import struct

import jinja2
import tokenizers
import transformers
from transformers.utils import chat_template_utils

ROOT = pathlib.Path(__file__).resolve().parents[3]
HERE = pathlib.Path(__file__).resolve().parent
TOKENIZERS = ROOT / ".cache" / "npm-tokenizers"
FAMILIES = ROOT / ".cache" / "chat-templates"
NAMES = ["llama3", "qwen3", "gemma3", "gptoss", "deepseek_v3"]
PINNED = {"transformers": "5.23.0", "tokenizers": "0.23.3"}
SEED = 20240229
MASK = (1 << 64) - 1

CODE = [
    "def fibonacci(n: int) -> int:\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n",
    "for (size_t i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\n}\n\n\n",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name HAVING COUNT(*) > 1;",
    "<div class=\"a b\"><p>It's &amp; 100%</p><!-- x --></div>",
    "{\"key\": [1, 2.5e-10, null, true], \"nested\": {\"a\": \"\\u00e9\\n\"}}",
    "#include <vector>\ntemplate <typename T>\nauto f(T&& t) -> decltype(auto) { return std::forward<T>(t); }",
    "fn main() { let x: Vec<_> = (0..10).map(|i| i * i).collect(); println!(\"{:?}\", x); }",
    "const f = async (x) => { await g(x?.y ?? 0); return `${x}`; };",
    "0x1F 0b1010 1_000_000 3.14159 6.02e23 -17 +42 1234567890123456789 00123",
    "a->b::c<d>(e)[f]{g}; !@#$%^&*()_+-=[]{}|;':\",./<>?`~",
]
WORDS = {
    "english": "the quick brown fox jumps over a lazy dog don't I'll we've they're WON'T He'S tokenization internationalization supercalifragilistic HTTPServer camelCaseName snake_case_name".split(),
    "german": "Straße Äpfel über größer Übermäßigkeit Donaudampfschifffahrtsgesellschaft müßte schön".split(),
    "chinese": "你好 世界 人工智能 语言模型 北京大学 今天天气很好 中华人民共和国 的 是 了 龘 㐀 𠀀".split(),
    "japanese": "こんにちは 世界 ありがとう カタカナ ﾊﾝｶｸ 東京都 日本語 ー 々 ゝ".split(),
    "korean": "안녕하세요 한국어 대한민국 서울 언어 모델 토크나이저 ㄱㄴㄷ 각 뷁".split(),
    "arabic": "مرحبا بالعالم السلام عليكم كِتَابٌ ٱلْعَرَبِيَّة ١٢٣٤ لا".split(),
    "hebrew": "שלום עולם שָׁלוֹם".split(),
    "hindi": "नमस्ते दुनिया हिन्दी क्षत्रिय ज्ञान १२३".split(),
    "thai": "สวัสดี ชาวโลก ภาษาไทย กำ น้ำ".split(),
    "russian": "Привет мир нейросеть Ёжик съешь".split(),
    "greek": "Καλημέρα κόσμε ΑΣ ὀδυσσεύς".split(),
    "emoji": ["😀", "👨‍👩‍👧‍👦", "👩🏽‍💻", "🏳️‍🌈", "🇩🇪🇯🇵", "❤️", "☺", "1️⃣", "🧑🏿‍🤝‍🧑🏻", "🤷🏻‍♂️", "🫠", "🪿"],
    "combining": ["é", "e\u0301", "n\u0303", "Z\u0351\u036b\u0343", "a\u0308\u0301", "\u1112\u1161\u11ab", "ǅ", "ﬃ", "①", "²", "Å", "\u212b", "İ", "ſ"],
    "controls": ["\x00", "\x01", "\x07", "\x08", "\x0b", "\x0c", "\x1b[31m", "\x1c", "\x7f", "\x80", "\x85", "\xa0", "\xad", "\u200b", "\u200d", "\u200e", "\u2028", "\u2029", "\u202e", "\ufeff", "\ufffd", "\uffff", "\U0010ffff", "\ue000"],
    "marks": ["▁", "▁▁", "Ġ", "Ċ", "<0x0A>", "<unk>", "##ing", "</w>", "'", "’s", "''", "…", "—", "«»", "。", "、", "！"],
    "spaces": [" ", "  ", "   ", "    ", "\t", "\n", "\r\n", "\n\n", "\u3000", "\u2003", " \n", "\n ", " \t ", "        ", "\n\n\n\n"],
}
SPECIALS = ["<|begin_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>", "<bos>", "<eos>", "<start_of_turn>",
            "<end_of_turn>", "<|endoftext|>", "<|start|>", "<|message|>", "<think>", "</think>", "<tool_call>",
            "<｜begin▁of▁sentence｜>", "<｜User｜>", "<s>", "</s>", "<table>", "<unused7>", "[multimodal]"]


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


class Picker:
    """The generator that the test has too."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.state >> 33) % bound


def make_strings():
    rng = random.Random(SEED)
    strings = ["", " ", "  ", "\n", "a", "A", "é", "한", "\U0001F600", "Hello, world!", " Hello", "Hello ", "\t\tx"]
    strings += CODE + SPECIALS
    for n in (2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 100, 128, 200):
        for unit in (" ", "\n", "\t", "\r\n", "a", "é", "好", "=", "-", "0", "\u3000", "😀", " a", "▁"):
            strings.append(unit * n)
            strings.append("x" + unit * n + "y")
    kinds = sorted(WORDS)
    while len(strings) < 1700:  # one script at a time, words glued or spaced
        words = WORDS[rng.choice(kinds)]
        glue = rng.choice([" ", " ", " ", "", "  ", "\n", ", ", ". ", "_", "-", "\t"])
        strings.append(glue.join(rng.choice(words) for _ in range(rng.randint(1, 12))))
    every = [w for k in kinds for w in WORDS[k]] + SPECIALS
    while len(strings) < 2060:  # everything mixed
        strings.append("".join(rng.choice(every) + rng.choice(["", "", " "]) for _ in range(rng.randint(2, 24))))
    while len(strings) < 2140:  # random code points, unassigned ones too
        points = []
        for _ in range(rng.randint(1, 30)):
            top = rng.choice([0x80, 0x250, 0x3000, 0xFFFF, 0x10FFFF])
            point = rng.randint(0, top)
            points.append(chr(point) if not 0xD800 <= point <= 0xDFFF else "?")
        strings.append("".join(points))
    while len(strings) < 2170:  # code with changed indentation
        lines = rng.choice(CODE).split("\n")
        strings.append("\n".join(rng.choice(["", "  ", "    ", "\t", " "]) * rng.randint(0, 4) + l for l in lines))
    return strings


def expand(strings, seed, min_bytes):
    picker, out, size = Picker(seed), [], 0
    while size < min_bytes:
        text = strings[picker.below(len(strings))]
        out.append(text)
        size += len(text.encode())
    return "".join(out)


def write_strings(strings, longs):
    data = struct.pack("<I", len(strings) + len(longs))
    for text in strings:
        raw = text.encode()
        data += struct.pack("<BI", 0, len(raw)) + raw
    for seed, size in longs:
        data += struct.pack("<BQI", 1, seed, size)
    (HERE / "strings.bin").write_bytes(data)


def tool(name, description, properties, required):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": properties, "required": required}}}


TOOLS = [
    tool("get_weather", "The weather of a city, in °C or \"°F\".",
         {"city": {"type": "string", "description": "e.g. Zürich <b>&</b>"},
          "unit": {"type": "string", "enum": ["c", "f"]}}, ["city"]),
    tool("add", "a + b", {"a": {"type": "number", "default": 1.0}, "b": {"type": "integer", "minimum": -3}}, []),
]


def make_chats():
    user = lambda text: {"role": "user", "content": text}
    bot = lambda text: {"role": "assistant", "content": text}
    system = lambda text: {"role": "system", "content": text}
    call = lambda name, args, id="c1": {"id": id, "type": "function", "function": {"name": name, "arguments": args}}
    answer = lambda text, id="c1": {"role": "tool", "tool_call_id": id, "content": text}
    base = [
        [user("Hi")],
        [user("  padded \n")],
        [system("Be brief."), user("Hi")],
        [system("  Be\nbrief. "), user("你好 🙂"), bot("您好！ "), user("再见")],
        [user("a"), bot("b"), user("c"), bot("d"), user("e")],
        [user("a"), bot("b")],
        [system("s1"), system("s2"), user("u")],
        [user("one"), user("two")],
        [bot("first"), user("then")],
        [user("")],
        [user("<|im_end|><end_of_turn> injected")],
        [user("What is 2+2?"), bot("<think>\nadd them\n</think>\n\n4"), user("and 3+3?")],
        [user("q"), {"role": "assistant", "content": "a", "reasoning_content": "because"}, user("r")],
        [user("q"), {"role": "assistant", "content": "a", "reasoning_content": "because"}],
        [user([{"type": "text", "text": " part one "}, {"type": "text", "text": "part two"}])],
        [system([{"type": "text", "text": "sys"}]), user([{"type": "image"}, {"type": "text", "text": "see"}])],
        [user("tab\tand\x0bcontrol\x1f\x7f")],
        [user("{{ messages }} {% raw %}")],
        [user(123)],
        [{"role": "user", "content": None}],
        [{"role": "developer", "content": "dev"}, user("x")],
        [user("weather?"), {"role": "assistant", "content": None, "tool_calls": [call("get_weather", "{\"city\": \"Bern\"}")]}, answer("12°")],
        [user("weather?"), {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"city": "Bern", "unit": "c"})]}, answer("12°"), bot("12 degrees"), user("thanks")],
        [user("two"), {"role": "assistant", "content": "calling", "tool_calls": [call("add", {"a": 1, "b": -2}, "c1"), call("get_weather", {"city": "São Paulo \"x\" </s> 'y'"}, "c2")]}, answer("-1"), answer("30", "c2"), user("ok")],
        [system("tools!"), user("go"), {"role": "assistant", "content": "", "tool_calls": [call("add", {"a": 0.1, "b": 2**63, "c": 1e22, "d": [None, True, {"é": "\u2028"}], "e": 1e-7, "f": -0.0, "g": 100.0})]}, answer("{\"r\": 1}")],
    ]
    chats = []
    for number, messages in enumerate(base):
        for prompt in (True, False):
            chats.append({"messages": messages, "tools": None, "add_generation_prompt": prompt, "extra": {}})
        if number in (0, 2, 3, 4, 22, 23, 24):
            chats.append({"messages": messages, "tools": TOOLS, "add_generation_prompt": True, "extra": {}})
            chats.append({"messages": messages, "tools": TOOLS[:1], "add_generation_prompt": False, "extra": {}})
        if number in (0, 3, 11):
            chats.append({"messages": messages, "tools": None, "add_generation_prompt": True,
                          "extra": {"enable_thinking": False}})
    for messages in (base[5], base[13], base[4] + [bot("continue me ")]):
        chats.append({"messages": messages, "tools": None, "add_generation_prompt": False, "extra": {},
                      "continue_final_message": True})
    return chats


TEMPLATES = [
    # whitespace control
    "{% if true %}\n  a\n{% endif %}\n  {% for i in [1, 2] %}\n{{ i }},\n  {% endfor %}\nend\n",
    "a  {%- if true -%}  b  {%- endif -%}  c {{- ' d ' -}} e {#- comment -#} f",
    "  {%+ if true %}x{% endif +%}\n y\n\n",
    "{% raw %}{{ x }} {% if %}{% endraw %}|{# {{ y }} #}|",
    # printing
    "{{ none }} {{ true }} {{ False }} {{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 123456789012345678 }} {{ 0.1 + 0.2 }} {{ 1/3 }}",
    "{{ [1, 'a', none, true, 1.5, \"it's\", 'q\"', 'é\\n\\x07'] }} {{ {'a': [1], 'b': {}} }} {{ (1,) }} {{ () }}",
    "{{ messages }}", "{{ tools }}", "{{ messages | string }}", "{{ 'a' ~ none ~ 1 ~ true ~ 1.0 ~ [1] }}",
    # tojson
    "{{ tools | tojson }}", "{{ tools | tojson(indent=2) }}", "{{ tools | tojson(ensure_ascii=True) }}",
    "{{ tools | tojson(indent=4, sort_keys=True) }}", "{{ tools | tojson(separators=(',', ':')) }}",
    "{{ {'b': 1, 'a': [none, true, 1.0, 1e30, 0.00001, -5, '\\u2028 é \\t /'], 3: {}, 'e': []} | tojson }}",
    "{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=2) }}{{ [[]] | tojson(indent=1) }}{{ 'x' | tojson }}",
    # strings
    "{{ ' \\x1f a b ' | trim }}|{{ '  x  '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxa'.lstrip('x') }}|{{ 'a\\n\\n'.rstrip('\\n') }}",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c'.rsplit(' ', 1) }} {{ 'a b c d'.split(maxsplit=2) }}",
    "{{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'aXbX'.replace('X', '-', 1) }} {{ 'abc'.find('c') }} {{ 'abc'.find('z') }}",
    "{{ 'Hello'.startswith('He') }} {{ 'Hello'.endswith(('x', 'lo')) }} {{ 'hELLO wORLD'.title() }} {{ 'ab'.upper() }} {{ 'éA'.lower() }} {{ 'abc'.capitalize() }}",
    "{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }}",
    "{{ ', '.join(['a', 'b']) }} {{ ['a', 1, none] | join('-') }} {{ messages | map(attribute='role') | join(',') }}",
    "{{ 'abc'[0] }}{{ 'abc'[-1] }}{{ 'abc'[1:] }}{{ 'abc'[::-1] }}{{ [1,2,3][::-1] }}{{ [1,2,3,4][1:3] }}{{ [1,2,3][-2:] }}{{ [1,2,3,4,5][::2] }}",
    "{{ '%s is %d and %.2f' % ('x', 3, 1.5) }} {{ '%05d' % 42 }} {{ 'a' * 3 }} {{ [0] * 2 }} {{ '{} {}'.format('a', 1) }} {{ '7'.zfill(3) }}",
    "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'x' | replace('x', 'y') }}|{{ 'ab' | upper }}|{{ 'ab cd' | title }}|{{ '<&>' | e }}",
    # numbers and logic
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 4 / 2 }} {{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ not 0 }} {{ 3 and 4 }} {{ 0 or 'x' }}",
    "{{ 'a' in 'cat' }} {{ 'x' not in ['a'] }} {{ 'k' in {'k': 1} }} {{ 1 if false }}|{{ 1 if none else 2 }} {{ '5' | int + 1 }} {{ 3.7 | int }} {{ 2.5 | round }}",
    "{{ undefined_thing }}|{{ undefined_thing is defined }}|{{ undefined_thing | default('d') }}|{{ '' | default('e', true) }}|{{ none | default('n') }}",
    "{{ x is string }}{{ 'x' is string }}{{ 1 is number }}{{ true is number }}{{ {} is mapping }}{{ [] is sequence }}{{ 'a' is sequence }}{{ 'a' is iterable }}{{ 1 is iterable }}{{ none is none }}{{ 1 is integer }}{{ 1.0 is float }}{{ true is boolean }}{{ 3 is odd }}{{ 4 is divisibleby(2) }}{{ [] is iterable }}{{ {} is iterable }}",
    # control
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex0 }}{{ loop.cycle('a', 'b') }}{% if loop.previtem is defined %}{{ loop.previtem.role }}{% endif %}{% if loop.nextitem is defined %}>{{ loop.nextitem.role }}{% endif %};{% else %}none{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }} {% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{% endfor %}",
    "{% set ns = namespace(n=0, s='') %}{% for i in [1, 2, 3] %}{% set ns.n = ns.n + i %}{% set x = i %}{% endfor %}{{ ns.n }}{{ x }}",
    "{% macro f(a, b='d', c=none) %}[{{ a }}|{{ b }}|{{ c }}|{{ varargs }}]{% endmacro %}{{ f(1) }}{{ f(1, c=2) }}{{ f('x', 'y') }}" .replace("|{{ varargs }}", ""),
    "{% macro outer() %}<{{ caller() }}>{% endmacro %}{% call outer() %}in{% endcall %}{% set y %}blk{{ 1 }}{% endset %}{{ y }}{% filter upper %}abc{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}{%- generation -%} x {%- endgeneration -%}",
    # data
    "{{ messages[0].content }}{{ messages[0]['role'] }}{{ messages[-1].role }}{{ messages | length }}{{ messages[0].get('x', 'dflt') }}{{ messages[0].get('nope') }}{{ messages[5] is defined }}",
    "{{ messages[0].keys() | list }}{{ messages[0].values() | list }}{{ messages[0].items() | list }}{{ {'items': 1}.items() | list }}{{ dict(a=1, **{'b': 2}) }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', 'eq', 'user') | map(attribute='content') | list }}{{ [3, 1, 2] | sort }}{{ [1, 1, 2] | unique | list }}{{ [1, 2, 3] | sum }}{{ [1, 5] | max }}{{ [1, 5] | first }}{{ [1, 5] | last }}{{ {'b': 1, 'a': 2} | dictsort }}{{ [1, 2, 3] | reverse | list }}{{ [1,2,3] | batch(2) | list }}",
    "{{ [1, 2] + [3] }}{{ 'a' + 'b' }}{{ [[1, 2], [3]] | map('length') | list }}{{ ['a', 'b'] | map('upper') | join }}{{ [0, 1] | select | list }}",
    "{% if tools %}{% for t in tools %}{{ t.function.name }}:{% for p, d in t.function.parameters.properties.items() %}{{ p }}({{ d.type }}){% if d.enum %}{{ d.enum | join('|') }}{% endif %},{% endfor %}{% endfor %}{% endif %}",
    # what is not there
    "{{ u | length }}|{{ u | count }}|{{ u | list }}|{{ u | join(',') }}|{{ u | first is defined }}|{{ u | last is defined }}|{{ u | string }}|{{ u | trim }}",
    "{{ u | upper }}|{{ u | lower }}|{{ u | capitalize }}|{{ u | title }}|{{ u | replace('a', 'b') }}|{{ u | e }}|{{ u | safe }}|{{ u ~ 'a' }}|{{ not u }}",
    "{{ u | map(attribute='x') | list }}|{{ u | selectattr('x') | list }}|{{ u | sort }}|{{ u | unique | list }}|{{ u | sum }}|{{ u | reverse | list }}|{{ u | max }}",
    "{{ u | items | list }}|{{ u | batch(2) | list }}|{{ u == none }}|{{ u == u }}|{{ u in [1] }}|{{ 1 in u }}|{% for x in u %}{% else %}none{% endfor %}",
    "{{ none | trim }}|{{ none | upper }}|{{ none in [none] }}|{{ none | string }}", "{{ u | dictsort }}", "{{ none | length }}",
    # errors
    "{{ raise_exception('no') }}", "{{ undefined_thing.x }}", "{{ 'a' + 1 }}", "{{ 'a' + undefined_thing }}", "{{ undefined_thing | tojson }}",
    "{{ messages[0].content.nothing() }}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set messages.x = 1 %}", "{{ [].append(1) }}",
    "{{ 1 / 0 }}", "{{ 'a' | nothing }}", "{% if %}",
]
TEMPLATE_MESSAGES = [{"role": "user", "content": "it's \"q\" é\n"}, {"role": "assistant", "content": "b", "n": 1.5}]


def write_templates():
    cases = []
    for source in TEMPLATES:
        try:
            text = chat_template_utils.render_jinja_template(
                [TEMPLATE_MESSAGES], tools=TOOLS, chat_template=source)[0][0]
        except Exception:  # whatever Jinja raises
            text = None
        cases.append({"source": source, "text": text})
    (HERE / "templates.json").write_text(json.dumps(
        {"messages": json.dumps(TEMPLATE_MESSAGES), "tools": json.dumps(TOOLS), "cases": cases},
        ensure_ascii=False, indent=0) + "\n")
    print(f"{len(cases)} templates, {sum(c['text'] is None for c in cases)} refused")


class Then(datetime.datetime):
    """What strftime_now shows."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 4, 5, 6, 7, tzinfo=datetime.timezone.utc)


def refused(error):
    """None for raise_exception in a template; False where Python stumbles over a value."""
    return None if type(error) is jinja2.TemplateError else False


def meant(messages):
    """As apply_chat_template does it."""
    return [{k: v for k, v in message.items() if v is not None} for message in messages]


def write_families(chats):
    """Templates of many families, with the same conversations. The texts of templates are their authors', so that only
    hashes are kept."""
    chat_template_utils.datetime = Then
    table = {}
    for path in sorted(FAMILIES.glob("*.jinja")):
        source = path.read_text()
        rows = []
        for chat in chats:
            try:
                text = chat_template_utils.render_jinja_template(
                    [meant(chat["messages"])], tools=chat["tools"], chat_template=source,
                    add_generation_prompt=chat["add_generation_prompt"],
                    continue_final_message=chat.get("continue_final_message", False), bos_token="<s>", eos_token="</s>",
                    **chat["extra"])[0][0]
                rows.append(f"{fnv(text.encode()):016x}")
            except Exception as e:  # whatever Jinja raises
                rows.append(refused(e))
        table[path.name] = rows
    (HERE / "families.json").write_text(json.dumps(table, indent=0) + "\n")
    texts = sum(isinstance(row, str) for rows in table.values() for row in rows)
    print(f"{len(table)} families, {texts} texts")


def render(tokenizer, chat):
    try:
        return tokenizer.apply_chat_template(
            chat["messages"], tools=chat["tools"], tokenize=False, add_generation_prompt=chat["add_generation_prompt"],
            continue_final_message=chat.get("continue_final_message", False), **chat["extra"])
    except Exception as e:  # whatever Jinja raises
        return refused(e)


def main():
    for name, version in PINNED.items():
        have = {"transformers": transformers, "tokenizers": tokenizers}[name].__version__
        if have != version:
            raise SystemExit(f"{name} is {have}; these fixtures come from {version}")
    strings = make_strings()
    longs = [(seed, 100_000) for seed in range(1, 9)] + [(99, 20_000)]
    write_strings(strings, longs)
    everything = strings + [expand(strings, seed, size) for seed, size in longs]
    write_templates()
    chats = make_chats()
    (HERE / "chats.json").write_text(json.dumps([
        {"messages": json.dumps(c["messages"], ensure_ascii=False),
         "tools": json.dumps(c["tools"], ensure_ascii=False) if c["tools"] else "",
         "extra": json.dumps(c["extra"]), "add_generation_prompt": c["add_generation_prompt"],
         "continue_final_message": c.get("continue_final_message", False)} for c in chats],
        ensure_ascii=False, indent=0) + "\n")
    write_families(chats)
    for name in NAMES:
        folder = TOKENIZERS / name
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        data = b""
        for text in everything:
            ids = tokenizer.encode(text, add_special_tokens=True).ids
            plain = tokenizer.decode(ids, skip_special_tokens=False)
            data += struct.pack("<IQQ", len(ids), fnv(b"".join(struct.pack("<I", i) for i in ids)), fnv(plain.encode()))
        (HERE / f"ids_{name}.bin").write_bytes(data)
        fast = transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))
        if not fast.chat_template:
            print(f"{name}: {len(everything)} strings, no template")
            continue
        texts = [render(fast, chat) for chat in chats]
        (HERE / f"chats_{name}.json").write_text(json.dumps(texts, ensure_ascii=False, indent=0) + "\n")
        print(f"{name}: {len(everything)} strings, {len(texts)} chats, {len(texts) - sum(isinstance(t, str) for t in texts)} refused")


if __name__ == "__main__":
    main()
