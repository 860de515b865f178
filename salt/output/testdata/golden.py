"""Writes golden.json beside itself: sample values and what Salt's own outputters print for them.

Run it with the Python of a Salt 3008.3 installation:  SALT_VENV/bin/python golden.py
"""

import base64
import copy
import datetime
import json
import logging
import os
import sys

import msgpack

import salt.config
import salt.output

logging.disable(logging.CRITICAL)

NESTED = {
    "/": {
        "1K-blocks": "100", "used": None, "mounts": ["a", {"b": 1, "c": [1, 2]}, []], "empty": {}, "t": True, "f": 1.5,
        "s": "", "multi": "line1\nline2\n", "ml": ["x\ny", ["in", ["deep"]]],
    },
    5: "int key",
}


def state(num, ident, name, fun="file.managed", result=True, changes=None, comment="ok", duration=7.582, **more):
    mod, func = fun.split(".")
    ret = {
        "name": name, "result": result, "comment": comment, "changes": changes or {}, "start_time": "09:35:56.0%05d" % num,
        "duration": duration, "__run_num__": num, "__id__": ident, "__sls__": "web",
    }
    ret.update(more)
    return {"%s_|-%s_|-%s_|-%s" % (mod, ident, name, func): ret}


def states(*parts):
    out = {}
    for p in parts:
        out.update(p)
    return out


CHANGED = state(0, "motd_file", "/etc/motd", changes={"diff": "New file", "mode": "0644"}, comment="File /etc/motd updated")
CLEAN = state(1, "nothing", "nothing", "test.nop", comment="Success!", duration=0.308)
FAILED = state(2, "bad", "/x", "cmd.run", result=False, comment="It broke\n  second line\nthird\n", duration=12.5)
TESTED = state(3, "would", "would", "pkg.installed", result=None, changes={"a": {"old": "", "new": "1"}}, comment="would be changed")
WARNED = state(
    4, "warned", "warned", "test.nop", comment="fine", duration=3,
    warnings=["the option foo-bar-baz is deprecated and will go away in a later release; use quux-corge -- or nothing -- instead of it please",
              "second warning"])

HIGH = {
    "full": {"web-a": states(CHANGED, CLEAN)},
    "failed": {"web-a": states(CHANGED, CLEAN, FAILED, TESTED, WARNED)},
    "many": {"web-a": states(*[state(i, "s%d" % i, "n%d" % i, "test.nop", duration=150.25) for i in range(12)])},
    "compile": {"web-a": ["No matching sls found for 'nosuch' in env 'base'", "second \x1b[31m error"]},
    "scalars": {"a": 3, "b": "text\ntwo", "c": True, "d": None},
    "empty": {"web-a": {}},
    "string": "just text",
    "none": None,
    "list": ["a"],
    "parallel": {"web-a": states(
        state(0, "p1", "p1", "cmd.run", duration=100.5, __parallel__=True), state(1, "p2", "p2", "cmd.run", duration="300.25 ms", __parallel__=True),
        state(2, "q", "q", "cmd.run", duration=10))},
    "orchestrate": {
        "outputter": "highstate", "retcode": 1,
        "data": {"m1_master": states(state(
            0, "apply_bad", "apply_bad", "salt.state", result=False, comment="Run failed on minions: web-a", duration=3536.256,
            changes={"out": "highstate", "ret": {"web-a": states(CHANGED, FAILED)}}))},
    },
    "suborchestrate": {"m1_master": states(state(
        0, "sub", "state.orchestrate", "salt.runner", comment="Runner done", changes={"m1_master": states(CHANGED, CLEAN)}))},
    "lookup": {"web-a": {"jid": "20261121093512345678", "fun": "state.apply", "return": {"data": {"web-a": states(CLEAN)}}}},
    "ids": {"web-a": states(
        state(0, "mix", "true", "cmd.run", changes={"pid": 1}), state(1, "mix", "/bin/true", "cmd.run", changes={"pid": 2}, duration=2.5),
        state(2, "mix", "false", "cmd.run", result=False, duration=1), CLEAN)},
    "data": {"web-a": states(
        state(0, "d1", "d1", "test.nop", data=["x", 1]), state(1, "d2", "d2", "test.nop", data={"k": "v"}), state(2, "d3", "d3", "test.nop", data=7),
        state(3, "d4", "d4", "test.nop", comment=["a", "b"]))},
    "unordered": {"web-a": {"a_|-b_|-c_|-d": {"result": True, "changes": {}, "comment": "c", "name": "c"}}},
    "odd-changes": {"web-a": states(state(0, "x", "x", "test.nop", changes=["a", 1]))},
}

PLAIN = {
    "ping": {"web-a": True},
    "false": {"web-a": False},
    "nested": {"web-a": NESTED},
    "text": "a bare text",
    "multiline": {"web-a": "total 4\ndrwx  a\n\nlast\n"},
    "number": 5,
    "floats": {"a": [1.5, 1e16, 1e-5, 0.1, 100.0, 1e22, 123456789.123, -0.0, 3.0, 1234567890123456.0]},
    "ints": {"a": [0, -1, 2**63 - 1, 2**64 - 1]},
    "none": {"web-a": None},
    "empty-map": {},
    "empty-list": [],
    "empty-in-map": {"web-a": {}, "web-b": [], "web-c": ""},
    "list": ["a", 1, None, True, ["b", ["c"], {}], {"k": {"l": "m"}}],
    "list-of-maps": {"web-a": [{"b": 1, "a": "x"}, {"b": 2, "a": "y"}]},
    "grains": {"web-a": {"os": "Debian", "cluster": {"name": "blue", "n": 3}, "role": "web", "ip4": ["10.0.0.1", "127.0.0.1"]}},
    "unicode": {"wéb": "ünï \u2028 \U0001f600 \u00a0|\ufeff", "z": "日本"},
    "escape": {"web-a": "red \x1b[31mtext", "k\x1b": "v"},
    "control": {"a": "tab\there\rcr\x0bvt\x0cff\x00nul\x7fdel\x85nel"},
    "quotes": {"a": "it's", "b": 'say "hi"', "c": "both ' and \"", "d": "back\\slash"},
    "numeric-text": {"a": "100", "b": "1e3", "c": "0x1f", "d": "yes", "e": "null", "f": "1:30", "g": "2021-01-01", "h": "~", "i": "", "j": "- x", "k": "a: b",
                     "l": "#c", "m": "@x", "n": "%d", "o": "1_000", "p": ".5", "q": "=", "r": "!t", "s": "*a", "t": "&a", "u": "?", "v": "a#b", "w": "a #b"},
    "int-keys": {"web-a": {1: "one", 10: "ten", 2: "two"}},
    "mixed-keys": {"web-a": {"b": 1, 1: "x", None: "n", True: "t"}},
    "deep": {"a": {"b": {"c": {"d": {"e": ["f", {"g": ["h", ["i", ["j"]]]}]}}}}},
    "long-list": {"web-a": ["element-%02d" % i for i in range(20)]},
    "long-text": {"web-a": "the quick brown fox jumps over the lazy dog " * 6, "web-b": {"key": "no-blanks-" * 20}},
    "long-lines": {"web-a": ("first line of a text that is long enough to need a second line when printed prettily\n" * 3)},
    "long-top-text": "word " * 40,
    "nested-long": {"web-a": {"packages": {"pkg%d" % i: {"version": "1.%d.0-%ddebian" % (i, i), "arch": "amd64"} for i in range(6)}, "count": 6}},
    "bytes": {"web-a": b"\xff\xfe bin", "web-b": [b"\xffok", b"\xff\x00" * 20, b"\xfe'"]},
    "args": {"web-a": {"args": [1, "x", 2.5], "kwargs": {"a": "b", "c": [1, 2], "__pub_arg": [1, {"__kwarg__": True, "a": "b"}]}}},
    "trace": {"web-a": "The minion function caused an exception: Traceback (most recent call last):\n  File \"minion.py\", line 1\n    x\nValueError: kaboom"},
    "trailing": {"web-a": "ends with blanks   \n\n\n"},
    "times": {"web-a": datetime.datetime(2026, 1, 1), "web-b": {
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 678), "l": [datetime.datetime(2026, 1, 1, 5, 6), 1], datetime.datetime(2026, 1, 3): "key"}},
    "time": datetime.datetime(2026, 1, 1, 1, 1, 1),
    "time-keys": {"web-a": {datetime.datetime(2026, 1, 3): 1, datetime.datetime(2026, 1, 2): 2}},
    "ping-many": {"web-c": True, "web-a": True, "web-b": False},
}

KEYS = {
    "lists": {"minions": ["web-b", "web-a"], "minions_pre": ["new"], "minions_denied": [], "minions_rejected": ["x\x1b"]},
    "one": {"minions_pre": ["web-a"]},
    "fingers": {"minions_pre": {"web-a": "c7:41:da"}, "local": {"m1.pub": "2c:3f", "m1.pem": "7c:0c"}},
    "return": {"return": "7c:0c:1b"},
    "text": "no keys",
}

SILENT = {
    "silent": {"ghost": "Minion did not return. [No response]\nlater:\n\nsalt-run jobs.lookup_jid 20261121093513244628"},
    "gone": {"ghost": "Minion did not return. [Not connected]"},
}

TABLES = {
    "rows": {"web-a": {"result": [{"mac_address": "40:A6", "moves": 0, "static": False}, {"mac_address": "64:16:8D", "moves": 12, "static": True}]}},
    "texts": {"web-a": ["one", "two and a half"]},
    "scalars": {"web-a": {"x": 1, "y": "z"}},
    "mixed": {"web-a": ["one", 2]},
    "cells": {"web-a": [["a", "b"], ["cc", "dd"]]},
    "times": {"web-a": [{datetime.datetime(2026, 1, 3): 1, datetime.datetime(2026, 1, 2): [datetime.datetime(2026, 1, 1, 1, 1, 1, 50)]}]},
}

OPTS = salt.config.DEFAULT_MASTER_OPTS.copy()
OPTS.update({"extension_modules": "", "strip_colors": True, "state_verbose": True, "color_theme": None, "id": "m1"})


def ext(v):
    return msgpack.ExtType(78, v.strftime("%Y%m%dT%H:%M:%S.%f").encode())


def from_ext(_, data):
    return datetime.datetime.strptime(data.decode(), "%Y%m%dT%H:%M:%S.%f")


def forms(extra, outputter, value):
    out = []
    for color in (False, True):
        opts = copy.deepcopy(OPTS)
        opts["color"] = color
        more = dict(extra)
        retcode = more.pop("retcode", 0)
        opts.update(more)
        text = salt.output.out_format(copy.deepcopy(value), outputter, opts, _retcode=retcode)
        out.append(text or "")
    return out


def main():
    samples = []

    def add(name, value, cases):
        packed = msgpack.packb(value, use_bin_type=True, default=ext)
        value = msgpack.unpackb(packed, raw=False, strict_map_key=False, ext_hook=from_ext)
        done = []
        for outputter, opts in cases:
            plain, coloured = forms(opts, outputter, value)
            done.append({"outputter": outputter, "opts": opts, "plain": plain, "color": coloured})
        samples.append({"name": name, "value": base64.b64encode(packed).decode(), "cases": done})

    every = [(n, {}) for n in ("nested", "json", "yaml", "txt", "raw", "pprint")]
    for name, value in PLAIN.items():
        cases = list(every)
        if name in ("nested", "ping", "grains", "list", "mixed-keys", "empty-map", "floats", "times"):
            cases += [("json", {"output_indent": n}) for n in (-1, 0, 2, "pretty")]
            cases += [("yaml", {"output_indent": n}) for n in (-1, 4)]
            cases += [("pprint", {"output_indent": 3}), ("nested", {"retcode": 1}), ("nested", {"strip_colors": False})]
        add("plain/" + name, value, cases)
    modes = ["full", "terse", "mixed", "changes", "filter", "full_id", "terse_id", "mixed_id", "changes_id"]
    for name, value in HIGH.items():
        cases = [("highstate", {})]
        if name in ("full", "failed", "ids"):
            cases += [("highstate", {"state_output": m}) for m in modes]
            cases += [("highstate", o) for o in (
                {"state_verbose": False}, {"state_output_diff": True}, {"state_output_profile": False}, {"state_output_pct": True},
                {"state_output": "terse", "state_tabular": True}, {"state_output": "terse", "state_tabular": "{0}{1} {2:>8}.{3:<12}|{4}{5} {6[duration]!s:>9}"},
                {"state_output": "terse", "state_tabular": True, "state_output_profile": False},
                {"state_output": "filter", "state_output_exclude": "True,None"}, {"state_output": "filter", "state_output_terse": ["True"]},
                {"state_compress_ids": True}, {"state_compress_ids": True, "state_output": "terse_id"})]
        add("highstate/" + name, value, cases)
    for name, value in KEYS.items():
        add("key/" + name, value, [("key", {}), ("json", {}), ("yaml", {})])
    for name, value in SILENT.items():
        add("no_return/" + name, value, [("no_return", {})])
    for name, value in TABLES.items():
        add("table/" + name, value, [("table", {})])

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden.json")
    with open(path, "w", encoding="utf-8") as fh:
        json.dump({"samples": samples}, fh, indent=1, ensure_ascii=True)
        fh.write("\n")
    print("%d samples, %d texts" % (len(samples), 2 * sum(len(s["cases"]) for s in samples)), file=sys.stderr)


main()
