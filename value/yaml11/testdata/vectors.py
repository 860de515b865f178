#!/usr/bin/env python3
"""Makes args.json, load.json and dump.json from the real Salt.

Run with the Python of an environment that has Salt 3008.3 (PyYAML with libyaml):
    venv/bin/python vectors.py

Only calls Salt: yamlify_arg, parse_input, yaml.safe_load, yaml.safe_dump.
"""
import base64
import json
import os
import random

import salt.utils.yaml
from salt.utils.args import parse_input, yamlify_arg

HERE = os.path.dirname(os.path.abspath(__file__))


def enc(v):
    if v is None or isinstance(v, bool):
        return v
    if isinstance(v, str):
        return {"s": v}
    if isinstance(v, int):
        return {"i": str(v)}
    if isinstance(v, float):
        return {"f": v.hex()}
    if isinstance(v, bytes):
        return {"b": base64.b64encode(v).decode()}
    if isinstance(v, dict):
        return {"m": [[enc(k), enc(x)] for k, x in v.items()]}
    if isinstance(v, (list, tuple)):
        return [enc(x) for x in v]
    if isinstance(v, set):
        return {"set": sorted((enc(x) for x in v), key=str)}
    raise TypeError(type(v))


def load(text):
    try:
        return enc(salt.utils.yaml.safe_load(text))
    except Exception as exc:
        return {"e": type(exc).__name__}


def write(name, rows):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        f.write("[\n")
        f.write(",\n".join(json.dumps(r, ensure_ascii=True) for r in rows))
        f.write("\n]\n")


WORDS = """1 0 -1 +1 017 -017 0o17 00 08 0_7 0x1f 0X1F 0b11 1_000 1_0.5 1:30 -1:30 190:20:30 190:20:30.15 1:60 1:3:5
1e3 1e+3 1.0e3 1.0e+3 1.5e-3 1. .5 -.5 +.5 . .e .inf -.inf +.inf .INF .Inf .iNf .nan .NaN .NAN inf nan
18446744073709551615 18446744073709551616 9223372036854775808 -9223372036854775809 20261121093513244628 10000000000000000000
2021-01-01 2021-1-1 2021-01-01T10:00:00Z 2021-01-01T10:00:00.5+01:00 2001-12-14t21:59:43.10-05:00
yes Yes YES yEs no No NO on On ON oN off Off OFF true True TRUE tRue false False FALSE y Y n N t f
null Null NULL nUll ~ None none '' "" '1' "1" 'it''s' "a\\tb" "\\x41" "a" '---' --- ... -- - ? : , [ ] { } & * ! | > % @ ` # #x x#y x#
'#' ! !x !!str !!int !!null !!bool !!float !!binary !!set !!omap <<  = a=b a==b a: :a a:b a-b -a --a a,b [a,b] [a] {a} {a:1} {} []
*x &x &x_y @a `a %a |a >a a| a> a& a* a! a% a@ a` $x $(x) ~x ~/x /x //x \\x x\\ é ü 日本 \u2028 \u0085 \ufeff \U0001F600""".split()

ARGS = WORDS + [
    "", " ", "  a  ", " 1", "1 ", "a b", "1 2", "a: b", "a:  b", "- a", "- 1", "? a", "? a : b", "[1, 2]", "[1, '2', 3.0, null]", "[ ]", " [1]",
    "[1,2", "1,2]", "{a: 1}", "{a: {b: [1, 2]}}", "{'a': \"b\"}", "{a: 1, a: 2}", "{1: a, 1.0: b}", "{a: 1", " {a: 1}", "{[a]: 1}", "{<<: {a: 1}, b: 2}",
    "a # b", "1 # b", "[1] # x", "{a: 1} # x", " [1] # x", "a: b # c", "- a # b", "#", "# x", " #x", "foo#bar", "null #", "'a' # b", "true # x",
    "a\tb", "a\nb", "a\rb", "1\n", "\t1", "a\x00b", "a\x07b", "a\x7fb", "\x1b[0m", "!!str 1", "!!int '7'", "!!int x", "!!float 1", "!!bool yes", "!!bool x",
    "!!null x", "!!binary aGk=", "!!timestamp 2001-01-01", "!!set {a, b}", "! 1", "! a", "! [1]", "!", "|", ">", "&a b", "&a 1", "[&a 1, *a]", "*a", "[*a]",
    "[a, b]: c", "{a: b}: c", "a: b: c", "'a': b", "'a'b", "'a", "\"a", "\"a\\q\"", "\"\\u00e9\"", "''''", "a'b", "a\"b", "--- a", "--- [1]", "... a", "%YAML 1.1",
    "@", "`", "%", "a, b", "[a: b]", "[a: b, c]", "{a, b: c}", "[{a: 1}, [2]]", "[yes, no, 017, 1:30, 1e3, 2021-01-01]", "{yes: no}", "{~: 1}", "{1: 2}",
    "[20261121093513244628, 18446744073709551616]", "20261121093513244628 ", "-1234567890123456789", "12345678901234567890", "1_2_3", "_1", "1__", " 1_0 ",
    "x" * 200, "[" * 50 + "]" * 50, "[a,,b]", "[,]", "[a,]", "{a,}", "{,}", "{a: 1,}", "{:}", "{a:}", "{'a':1}", "{\"a\":1}", "[a:1]", "['a':1]", "[::]", "::", "a::b", "http://x/y", "[http://x/y]", "{u: http://x/y}",
    "a b: c", "salt://x/y.sls", "G@os:Debian and *", "1.2.3", "1.2.3.4", "10.0.0.0/8", "::1", "fe80::1", "aa:bb:cc:dd", "11:22:33:44:55:66", "2:30pm", "50%", "-5", "- 5", "a?b", "[a?b]", "[?a]", "[? a]", "{? a}", "[-a]", "[- a]", "[-]", "{-}", "{- a}",
]

KWARGS = [
    [], ["a"], ["a=b"], ["a=1"], ["a==b"], ["a="], ["=a"], ["1a=b"], ["_a=b"], ["a.b=c"], ["a-b=c"], ["a b=c"], ["é=1"], ["a=b=c"], ["a= 1"], ["a =1"],
    ["a=x\ny"], ["a=x\n"], ["a=\n"], ["a=\n\n"], ["a\nb=c"], ["a=1", "b", "c=[1, 2]", "2"], ["a=1", "b=2", "a=3"], ["²=1"], ["a²=1"], ["x=None"], ["x=yes", "None"],
    ["20261121093513244628"], ["a=20261121093513244628"], ["-1234567890123456789"], ["12345678901234567890"], ["1234567890123456"], ["[20261121093513244628]"],
    ["a={b: c}"], ["a=#x"], ["a='1'"], ["a=1_000"], ["--x=y"], ["a_1=2"], ["a-=1"], ["a.=1"], ["１=2"], ["aé=1"],
]

LOADS = [
    "", "\n", "---\n", "---\n...\n", "# only a comment\n", "a: 1\n", "a: 1\nb: 2\na: 3\n", "a: 1\n'a': 2\n", "1: a\n1.0: b\n", "true: a\n1: b\n", "a: {b: 1, b: 2}\n",
    "- a\n- b\n", "- - a\n  - b\n- - c\n", "a:\n- b\n- c\n", "a:\n  - b\n  - c: d\n    e: f\n", "a: |\n  x\n  y\n", "a: |-\n  x\n  y\n", "a: |+\n  x\n\n", "a: >\n  x\n  y\n\n  z\n", "a: >-\n  x\n   y\n  z\n", "a: |2\n   x\n",
    "a: 'x\n\n  y'\n", "a: \"x\\\n  y\"\n", "a: x\n  y\n", "a:\n", "a: ~\nb: null\nc:\nd: ''\n", "x: &a {p: 1}\ny: *a\n", "b: &b {p: 1, q: 2}\nc: {<<: *b, q: 3}\n", "b: &b {p: 1}\nc: &c {p: 2, r: 3}\nd:\n  <<: [*b, *c]\n", "b: &b {p: 1}\nc: &c {r: 3}\nd:\n  <<: [*b, *c]\n  z: 1\n",
    "b: &b {p: 1}\nd:\n  <<: *b\n  <<: *b\n", "d:\n  <<: 1\n", "d:\n  '<<': 1\n", "d:\n  <<: [1]\n", "=: 1\n", "a: =\n", "a: <<\n", "- <<\n",
    "a: 0644\nb: '0644'\nc: -0644\nd: 0o644\ne: 0\nf: 00\ng: 0x1F\nh: 0b101\ni: 1_000\nj: 12:30\nk: 12:30:45.5\nl: 0_7\n", "a: 1e3\nb: 1.0e3\nc: 1.0e+3\nd: .5\ne: 1.\nf: .inf\ng: -.inf\nh: 1_0.5\n", "a: yes\nb: NO\nc: On\nd: oFF\ne: y\nf: n\n",
    "a: 2021-01-01\nb: 2021-01-01 10:00:00\n", "a: !!binary aGVsbG8=\nb: !!binary aGVsbG8\nc: !!binary |\n  aGVs\n  bG8=\n", "a: !!binary é\n", "a: !!binary a\n", "a: !!set {x, y}\n", "a: !!set [x]\n", "a: !!omap [x: 1, y: 2]\n", "a: !!pairs [x: 1, x: 2]\n", "a: !!omap {x: 1}\n", "a: !!str 1\nb: !!int '3'\nc: !!float 3\nd: !!bool 'on'\ne: !!null x\n", "a: !!int x\n", "a: !!bool x\n", "a: !foo x\n", "a: !!python/object:os.system x\n", "a: !!python/unicode x\n", "a: !!str [x]\n", "a: !!seq {x: 1}\n", "a: !!map [x]\n", "a: !!seq x\n", "a: ! 1\nb: ! yes\nc: ! ''\nd: !\n", "- &a ! 1\n- *a\n", "a: !!timestamp 2001-01-01\n",
    "[a, b]: c\n", "? [a]\n: b\n", "? a\n: b\n", "? |\n  x\n: y\n", "a: b: c\n", "a: [1, 2\n", "a: {b: 1\n", "\ta: 1\n", "a:\tb\n", "a:\n\t- b\n", "a: b\n\tc\n", "a: 1\n b: 2\n", "  a: 1\nb: 2\n", "a: 'x\n", "a: \"\\z\"\n", "a: @x\n", "a: `x\n", "a: %x\n", "%YAML 1.1\n---\na: 1\n", "%YAML 1.2\n---\na: 1\n", "%YAML 2.0\n---\na: 1\n", "%TAG ! tag:yaml.org,2002:\n---\n!int '3'\n", "%FOO bar\n---\na: 1\n", "a: 1\n---\nb: 2\n", "a: 1\n...\n", "a: 1\n...\n---\n", "a: *x\n", "a: &x 1\nb: &x 2\nc: *x\n",
    "\ufeffa: 1\n", "a: 1\r\nb: 2\r\n", "a: 1\rb: 2\r", "a: é\n", "a: \U0001F600\n", "a: x\x07y\n", "a: \"x\x7fy\"\n", "a: 1 # c\nb: x#y\nc: 'x # y'\n# end\n", "a: # c\n  b: 1\n", "a:\n# c\n- 1\n# d\n- 2\n", "- # c\n  a\n", "a: [1, # c\n  2]\n", "# c\n\n# d\na: 1\n", "a: |\n  x\n  # y\nb: 1\n", "a: |\n  x\n # y\nb: 1\n", "a: | # c\n  x\n",
    "base:\n  '*':\n    - common\n  'G@os:Debian':\n    - match: compound\n    - debian\n", "file_roots:\n  base:\n    - /srv/salt\n  dev: [/srv/dev]\n", "interface: 127.0.0.1\npublish_port: 4505\nauto_accept: True\n", "cluster_peers:\n  - 127.0.0.2\n  - 127.0.0.3\n",
    "a: x: y\n", "a: 'b': c\n", "{a: 1}: 2\n", "a: b\n- c\n", "- a\nb: c\n", "a:\n  b\n  c: d\n", "key: - a\n", "a: - b\n", "a: ? b\n", "a: , b\n", "- ,a\n", "x: [a, b]c\n", "x: {a: b}c\n", "x: 'a' b\n", "a\n", "1\n", "'a'\n", "|\n x\n", "a\nb\n", "a b:\n  c\n", "a" * 1100 + ": 1\n", "a:    1\n\n\n\nb:    2", "- \n- \n", "-\n-\n", "- a:\n  - b\n", "? a\n? b\n", "{a, b, c: d}", "[a: b, c]", "[? a : b]", "{? a : b}", "{a: , b: }", "{a:, b}", "[a,, b]", "[,]", "{,}", "[a, b,]", "{a: b,}", "{a: [}", "['a':1]", "{\"a\":1}", "{a:1}", "[a:1]", "[:a]", "[a:]", "{a:}", "{:a}", "[-a, -1, - 1]", "[a#b, c #d\n]", "a: [\nb,\n c]\n", "a: [\n  b,\n]\n", "a: {\n  b: c\n}\n", "a: {\nb: c\n}\n", "a: >\n\n  x\n", "a: |\n\n\n  x\n   y\n  z\n\nb: 1\n", "a: |1\n  x\n", "a: |0\n  x\n", "a: |10\n  x\n", "a: |-2\n   x\n", "a: |2-\n   x\n", "--- a\n--- b\n", "--- |\n  x\n", "---a\n", "--- {a: b}\n", "a: ---\n", "a: ...\n", "...\n", "a: '---'\n", "'a\n---\n'\n",
]

STRINGS = WORDS + [
    "", " ", "a b", " a", "a ", "a\n", "\na", "a\nb", "a\nb\n", "a\n\nb", "a\n\n", "\n", "\n\n", "a \nb", "a\n b", "a\tb", "\t", "a\t", "a\rb", "line1\nline2\n", "it's", "it's\nok", "a: b", "a :b", "a:", "- a", "-a", "? a", "?a", "a #b", "a# b", "#a",
    "x" * 79, "x" * 90, "x " * 60, "x  y " * 30, ("word " * 40).strip(), ("word " * 40).strip() + "\n" + ("more " * 40).strip(), "'" + "q " * 60, "\"" + "q " * 60, "\x00", "\x01 \x1b", "\x7f", "\x80", "\xa0", "é", "日本語", "日 " * 60, "\u2028", "a\u2028b", "a\u0085b", "\ufeff", "\ufffd", "\ufffe", "\U0001F600", "\U0001F600 " * 40, "\\", "a\\b", "\"", "a\"b", "%a", "@a", "`a", "1.2.3", "1\n", "true\n", "a,b", "[a", "a]", "{a", "&a", "a&b", "*a", "!a", "|", ">", "a|b", "=", "<<", "<", "---", "--- a", "---a", "...", "....", "a---", "\n  indented\n", "tab\there " * 20, "x" * 130, "x" * 128, "x" * 129, ("y" * 60 + " ") * 4, "null", "~", "012", "0o12", "1_0", "1e5", "1.e5", "0x", "+", "-", "+.", "-.", "2021-01-01", "12:30", "12:3x",
]

VALUES = STRINGS + [
    None, True, False, 0, 1, -1, 2**63, 2**64, -(2**63), 10**30, 0.0, -0.0, 1.0, 1.5, 1e15, 1e16, 1e17, 1.5e300, 1e-4, 1e-5, 1.25e-7, 123456789.123, 0.1, 1 / 3, float("inf"), float("-inf"), float("nan"), 100.0, 1e22, 5e-324,
    [], {}, [[]], [{}], {"a": []}, {"a": {}}, [1, 2], [[1, 2], [3]], [[[1]], [[2, [3]]]], [{"a": 1, "b": [1, 2]}, {"c": {}}], {"a": [1, {"b": 2}]}, {"b": 1, "a": 2, "C": 3}, {2: "x", 10: "y", 1: "z"}, {1: "a", "b": 2}, {"b": 2, 1: "a"}, {None: 1}, {None: 1, "a": 2}, {True: 1}, {True: "a", 0: "b", 0.5: "c"}, {1.5: 2, 1: 3, 2**70: 4}, {"": 1}, {"": {"": ""}}, {" ": 1}, {"a b": 1}, {"a: b": 1}, {"a\nb": 1}, {"- a": 1}, {"x" * 127: 1}, {"x" * 128: 1}, {"x" * 129: 1}, {"x " * 50: 1}, {"é" * 64: 1}, {"é" * 65: 1}, {"true": True, "1": 1, "null": None}, {"x" * 200: {"a": [1]}}, {"x" * 200: [1, {"y" * 200: 2}]}, {"a\nb": {"c\nd": ["e\nf"]}},
    {"web-a": {"multi": "line1\nline2\n", "used": None, "free": "100", "n": 100, "f": 1.5, "l": ["a", ["b"]], "e": {}, "t": True, "s": "yes"}}, {"web": True}, {"web": "line one\nline two"}, {"a": {"b": {"c": "x " * 60}}}, {"a": ["x " * 60, "y\n" * 3]}, [["x\ny", "z"]], [None, [None, {"a": None}]], {"k": "word " * 30}, {"k" * 100: "word " * 10},
    b"", b"hi", b"\xff\xfe", bytes(range(256)), {"b": b"\xff" * 100}, [b"\xff"], {b"\xff": 1}, {"b": [b"\xff", {"c": b"\x80"}]},
]

rng = random.Random(20261121)
ALPHABET = list("abyn019 :-#,[]{}'\"!&*?|>%@`=~._+\\/") + [": ", " #", "- ", "é", "yes", "0x", "1e", "<<"]


def word(most, extra=()):
    letters = ALPHABET + list(extra)
    return "".join(rng.choice(letters) for _ in range(rng.randint(1, most)))


def value(depth):
    kind = rng.randint(0, 9 if depth else 5)
    if kind < 4:
        return word(rng.choice([4, 12, 60, 140]), ["\n", " ", "  ", "word "])
    if kind == 4:
        return rng.choice([None, True, False, rng.randint(-(10**6), 10**20), rng.random() * 10 ** rng.randint(-20, 20)])
    if kind == 5:
        return word(40, [" ", "long", "words "])
    if kind < 8:
        return {word(rng.choice([4, 12, 150]), ["\n"]): value(depth - 1) for _ in range(rng.randint(0, 4))}
    return [value(depth - 1) for _ in range(rng.randint(0, 4))]


def soft():
    return "".join(rng.choice("abc019 .-_/?:") for _ in range(rng.randint(1, 8))).strip(" :-?") or "x"


def block(depth, pad):
    rows = []
    for _ in range(rng.randint(1, 3)):
        head = rng.choice(["- ", "k: ", word(5).replace("\n", "") + ": ", "? ", ""])
        if rng.random() < 0.75:
            head = rng.choice(["- ", soft() + ": "])
        tail = soft() if rng.random() < 0.6 else rng.choice(["|", ">-", "", "&a", "*a", "!", "! ''", "!!str", "# c"]) if rng.random() < 0.5 else word(10)
        if rng.random() < 0.3:
            tail = rng.choice("[{") + word(6) + rng.choice([", ", ": ", ",\n  ", "?", "? "]) + word(6) + rng.choice("]}")
        rows.append(pad + head + tail)
        if depth and rng.random() < 0.4:
            rows.append(block(depth - 1, pad + "  "))
    return "\n".join(rows) + rng.choice(["", "\n", "\n\n"])


QUESTIONS = [rng.choice("[{") + "".join(rng.choice("ab?:,-'\" ") for _ in range(rng.randint(1, 7))) + rng.choice("]}") for _ in range(800)]
args = ARGS + QUESTIONS + [word(8) for _ in range(1500)] + [rng.choice("[{") + word(8) + rng.choice("]}") for _ in range(700)]
write("args.json", [[a, enc(yamlify_arg(a))] for a in args])
write("kwargs.json", [[w, enc(parse_input(list(w)))] for w in KWARGS])
write("load.json", [[t, load(t)] for t in LOADS + [block(3, "") for _ in range(2500)]])
values = VALUES + [value(4) for _ in range(500)]
write("dump.json", [[enc(v), salt.utils.yaml.safe_dump(v, default_flow_style=False)] for v in values])
shapes = [v for v in values if isinstance(v, (dict, list))][:260]
write(
    "styles.json",
    [
        [enc(v), salt.utils.yaml.safe_dump(v, default_flow_style=True, indent=0), salt.utils.yaml.safe_dump(v, default_flow_style=False, indent=4)]
        for v in shapes
    ],
)
