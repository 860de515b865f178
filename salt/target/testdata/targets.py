"""Writes targets.json: what the real Salt library says to each target.

Run with the Python of a Salt virtual environment: python testdata/targets.py > testdata/targets.json
"""
import json
import logging
import random

logging.disable(logging.CRITICAL)
import salt.config
import salt.utils.minions

IDS = ["db1", "gone", "min6", "min7", "min8", "web01.example.com", "web02.example.com"]
DEEP = {
    "a": {"b": ["x", "y"], "c": {"d": 1}}, "n": 5, "t": True, "e": "", "f:g": "h",
    "l": [{"k": "v"}, "plain", 7], "fl": 1.5, "none": None, "num": {"1": "one"}, "Up": {"Case": "Value"},
    "deep": {"w": {"x": {"y": "z"}}},
}
GRAINS = {
    "min6": dict(DEEP, os="Debian", role="web", ipv4=["127.0.0.1", "10.0.0.6"], ipv6=["::1", "fd00::6"]),
    "min7": {"os": "Debian", "role": "db", "nest": {"x": {"y": "z"}}, "lst": ["a", "b"], "ipv4": ["10.0.0.7"]},
    "min8": {"os": "Ubuntu", "role": "web", "nest": {"x": {"y": "q"}}, "ipv4": ["10.0.1.8"]},
    "db1": {"os": "RedHat", "role": "d:b"},
    "web01.example.com": {"os": "Debian"},
    "web02.example.com": {},
}
PILLAR = {
    "min6": {"color": "blue", "app": {"port": 80}}, "min7": {"color": "Black"}, "min8": {"color": "red"},
    "db1": {}, "web01.example.com": {"color": "bl*"},
}
NODEGROUPS = {
    "ng1": "L@min8,min7", "ng2": "N@ng1 or db1", "nglist": ["min6", "min7"], "ngre": ["min[67]"], "ngloop": "N@ngloop2",
    "ngloop2": "N@ngloop or min6", "ngnot": "not N@nglist", "ngops": ["G@os:Debian", "and", "not", "min6"],
    "ngdeep": "( N@ng2 or N@ngre ) and G@os:Debian", "ngbad": 5, "ngnested": ["N@nglist"], "ngone": "db1",
    "ngunknown": "N@nosuch or min6",
}


class Cache:
    def list(self, bank):
        return list({"grains": GRAINS, "pillar": PILLAR}[bank])

    def fetch(self, bank, key):
        return {"grains": GRAINS, "pillar": PILLAR}[bank].get(key)


class Registry:
    def resolve_bare_resource_id(self, *_):
        return None


def checker():
    c = salt.utils.minions.CkMinions.__new__(salt.utils.minions.CkMinions)
    c.opts = dict(salt.config.DEFAULT_MASTER_OPTS, nodegroups=NODEGROUPS)
    c.cache = Cache()
    c.key = object()
    c._registry = Registry()
    c._pki_minions = lambda: set(IDS)
    c._augment_with_resources = lambda ids: ids
    return c


CASES = []
for e in ["*", "min[78]", "min[!6]", "min?", "web0[1-2]*", "m[6", "[]m]in6", "MIN6", "", "min6", "nosuch", "*.example.com", "m*n*6", "[z-a]*",
          "min[6-7-8]", "**", "min[-8]"]:
    CASES.append(("glob", e))
for e in ["min[78]$", "in8", "(?i)MIN", ".*8", "(", "web\\d\\d", "(?P<a>m)in(?P=a)?6", "a|min6", "min6\\Z", "", "^min"]:
    CASES.append(("pcre", e))
for e in ["min8,nosuch", ["min8", "min6", "nosuch"], "", ",,min6,", "min6,min6"]:
    CASES.append(("list", e))
PATHS = ["os:Debian", "os:debian", "os:*", "role:w*", "role:we", "role:d:b", "nest:x:y:z", "lst:b", "a:b:x", "a:b", "a:c:d:1", "a:c:d", "a:c:*",
         "n:5", "t:True", "t:true", "e:", "*:5", "a:*:x", "a:*", "a:b:X", "f:g:h", "zz:*", "A:b:x", "l:k:v", "l:plain", "l:7", "l:0:k:v", "fl:1.5",
         "none:None", "num:1:one", "up:case:value", "Up:Case:value", "Up:case", "deep:w:x:y:z", "deep:*:z", "*:deep", "*:*:z", "nodelim", ":", "::",
         "a:", "deep:w", "deep:w:x", "l:2:7", "l:1:plain", "l:-1:7", "os:", "*", "*:Debian", "os:(", "os:D.b", "os:D.bian|x", "a:b:(x|y)"]
for e in PATHS:
    CASES.append(("grain", e))
    CASES.append(("grain_pcre", e))
for e in ["color:bl*", "color:blue", "color:black", "app:port:80", "color:*", "color:bl.*", "color"]:
    for t in ("pillar", "pillar_pcre", "pillar_exact"):
        CASES.append((t, e))
for e in ["10.0.0.6", "10.0.0.0/24", "10.0.0.1/24", "fd00::/8", "fd00::6", "bogus", "10.0.0.0/8", "0.0.0.0/0", "::1", "10.0.1.8/32"]:
    CASES.append(("ipcidr", e))
COMPOUND = ["min6", "min6 or min7", "min* and G@os:Debian", "min* and not min6", "not min6", "min* not min6", "min6 or min7 and min8",
            "( min6 or min7 ) and min7", "(min8 or min7)", "( min8", "min8 )", "min6 and", "not not min6", "and min6", "or", "( and min6 )",
            "min6 min7", "not ( min6 or min7 )", "min6 or not ( min7 or db1 )", "not", "( )", "( ) or min6", "G|@role|web", "P|role|w.b",
            "P@role:w.b", "I@color:bl*", "J@color:bl.*", "L@min6,nosuch", "not L@min6,nosuch", "N@ng1", "N@nosuch", "min6 or N@nosuch",
            "N@nosuch min6", "S@10.0.0.0/24", "S@bogus", "min6 or S@bogus", "E@min[67]", "X@foo", "min6 or X@foo", "min6 not ( min6 )",
            "min* and ( not min6 or min7 )", "( not min6", "not ( min6", "min6 or ( min7 and", "N@ng2", "N@ngloop", "N@ngnot", "N@ngdeep and not db1",
            "G@@os@Debian", "G@", "L@", "* and not * or min6", "min6 or or min7", "( min6 ) ( min7 )", "min6 ( min7 )", "( ( ( min6 ) ) )",
            "not min6 and not min7", "not min6 or min6", "E@(", "min6 or E@(", "", "  ", "not ( not min6 )", "( min6 or min7 ) not min6", "G@nodelim", "N@ngunknown",
            "not ( min6 and min7 ) and min8", "not ( ( min6 ) or min7 )", "G:@os:Debian", "( not ( min6 ) )"]
WORDS = ["and", "or", "not", "(", ")", "min6", "min7", "min*", "G@os:Debian", "L@min8,db1"]
rnd = random.Random(8)
for _ in range(400):
    COMPOUND.append(" ".join(rnd.choice(WORDS) for _ in range(rnd.randint(2, 8))))
for e in COMPOUND:
    CASES.append(("compound", e))
for e in list(NODEGROUPS) + ["nosuch", ""]:
    CASES.append(("nodegroup", e))
CASES += [("nosuch", "*"), ("range", "x")]

out = []
c = checker()
for kind, expr in CASES:
    for greedy in (True, False) if kind in ("grain", "ipcidr", "compound", "pillar") else (True,):
        r = c.check_minions(expr, kind, greedy=greedy)
        out.append({"type": kind, "tgt": expr, "greedy": greedy, "minions": sorted(set(r["minions"])), "missing": list(dict.fromkeys(r["missing"]))})
print(json.dumps({"ids": IDS, "grains": GRAINS, "pillar": PILLAR, "nodegroups": NODEGROUPS, "cases": out}, indent=0))
