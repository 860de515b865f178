"""A state module of the site that says what it sees."""

import json
import os


def _ret(name, **more):
    return dict({"name": name, "result": True, "changes": {}, "comment": ""}, **more)


def mod_init(low):
    __context__["begun"] = __context__.get("begun", 0) + 1
    return low["__id__"] != "first"


def sees(name, **kwargs):
    # Salt's pillar has maps of a class of its own, ours plain ones.
    nested = json.loads(json.dumps(__pillar__["nested"]))
    # States are compiled as by Salt 3008: releases before list them in another order.
    compiled = [low["__id__"] for low in __lowstate__]
    if __grains__["saltversioninfo"][0] < 3008:
        compiled = sorted(set(compiled))
    seen = {
        "env": __env__,
        "low": {k: __low__[k] for k in sorted(__low__) if k != "order"},
        "instance": __instance_id__.isdigit() or type(__instance_id__).__name__,
        "running": sorted(__running__),
        "results": [__running__[k]["result"] for k in sorted(__running__)],
        "lowstate": compiled,
        "jid": __orchestration_jid__,
        "test": [__opts__["test"], __salt__["helps.test_mode"]()],
        "opts": [__opts__[k] for k in ("id", "site_option", "file_client", "saltenv", "pillarenv", "__role", "local")],
        "pillar": [__pillar__["word"], nested, __opts__["pillar"]["word"]],
        "salt pillar": [__salt__["pillar.get"]("word"), __salt__["config.get"]("site_option")],
        "grains": [__grains__[k] for k in ("os", "kernel", "pythonversion", "id")],
        "begun": __context__["begun"],
        "kwargs": sorted(kwargs),
        "states": "file.managed" in __states__,
        "runas": __context__.get("runas"),
    }
    return _ret(name, comment=repr(seen) if kwargs.get("shown") else "", changes=seen)


def grain(name):
    return _ret(name, comment=__grains__[name])


def quiet(name, given=("a", "b"), limit=1 << 80, number=1.5, flag=None):
    return _ret(name, comment=[repr(given), str(limit), repr(number), repr(flag)])


def changes(name):
    if __opts__["test"]:
        return _ret(name, result=None, changes={"would": name})
    return _ret(name, changes={"did": name})


def mod_watch(name, sfun=None, **kwargs):
    reqs = {kind: [low["__id__"] for low in lows] for kind, lows in kwargs["__reqs__"].items() if lows}
    return _ret(name, changes={"sfun": sfun, "reqs": reqs, "low": "watch" in __low__["__reqs__"]})


def raises(name):
    raise ValueError("this is wrong: %s" % name)


def malformed(name):
    return ["not a map"]


def tuples(name):
    return _ret(name, changes={"old": ("a", 1), "new": {"b": None}}, comment="ünï")


def masks(name):
    mask = os.umask(0)
    os.umask(mask)
    return _ret(name, comment=oct(mask))


def tries(name, path):
    with open(path, "a") as file:
        file.write("x")
    return _ret(name, result=os.path.getsize(path) > 2, comment="size %d" % os.path.getsize(path))


def needs(name, first, second=2):
    return _ret(name)
