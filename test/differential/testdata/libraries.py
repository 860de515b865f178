"""Answer what Salt's libraries do: libraries.py PART, with the Python of a Salt installation.

A question on standard input is its length (4 bytes, big-endian) and a body whose form depends on the part. An answer is its length and the parts of the
answer: for each a byte ("=" a result, "!" refused, "~" too long) and the length and bytes of what is behind it. The first question of some parts sets
them up and gets an empty answer.
"""

import copy
import fnmatch
import json
import logging
import os
import resource
import signal
import struct
import sys
import tempfile
import warnings
from collections import OrderedDict
from datetime import datetime

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")

import salt.payload
from salt.defaults import _Constant

SECONDS = 2
MEMORY = 3 << 30
OUTPUT = 1 << 20


class Late(BaseException):
    pass


def late(signum, frame):
    raise Late()


def text(s):
    b = s.encode("utf-8", "surrogatepass")
    return b"s%d:%s" % (len(b), b)


def show(v):
    """A value with its types and the order of its maps."""
    if v is None or v is True or v is False:
        return str(v).encode()
    if isinstance(v, int):
        return b"i%d" % v
    if isinstance(v, float):
        return b"fnan" if v != v else b"f" + struct.pack(">d", v).hex().encode()
    if isinstance(v, str):
        return text(v)
    if isinstance(v, bytes):
        return b"b%d:%s" % (len(v), v)
    if isinstance(v, (list, tuple)):
        return b"[" + b",".join(show(x) for x in v) + b"]"
    if isinstance(v, dict):
        return b"{" + b",".join(show(k) + b"=" + show(x) for k, x in v.items()) + b"}"
    if isinstance(v, (set, frozenset)):
        return b"<" + b",".join(sorted(show(x) for x in v)) + b">"
    if isinstance(v, datetime):
        return b"t" + v.strftime("%Y%m%dT%H:%M:%S.%f").encode()
    if isinstance(v, _Constant):
        return b"c[" + show(v.name) + b"," + show(v.value) + b"]"
    return b"?" + type(v).__name__.encode()


def shown(v):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100000)
    try:
        return show(v)
    finally:
        sys.setrecursionlimit(limit)


def tried(func, *args):
    """One part of an answer."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        body = func(*args)
        return (b"~", b"long") if len(body) > OUTPUT else (b"=", body)
    except (Late, MemoryError):
        return b"~", b"late"
    except RecursionError as exc:
        return b"!", b"RecursionError"
    except Exception as exc:
        cause = exc.__cause__ or exc
        return b"!", f"{type(cause).__name__}: {cause}".encode("utf-8", "replace")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def msgpack(body):
    kept = []

    def unpack():
        kept.append(salt.payload.loads(body))
        return shown(kept[0])

    first = tried(unpack)
    if first[0] != b"=":
        return [first]
    return [first, tried(salt.payload.dumps, kept[0]), tried(lambda: salt.payload.dumps(kept[0], use_bin_type=True))]


def globs(body):
    pattern, names = json.loads(body)
    return [tried(lambda: json.dumps([n for n in names if fnmatch.fnmatch(n, pattern)]).encode()),
            tried(lambda: json.dumps(fnmatch.filter(names, pattern)).encode())]


def yaml():
    import salt.utils.yaml

    class SLS(salt.utils.yaml.SaltYamlSafeLoader):
        """What the yaml renderer uses, apart from the loader of configurations, which keeps other constructors."""

        def __init__(self, stream):
            super().__init__(stream, dictclass=OrderedDict)

    def wire(v):
        """What SLS data is once it was packed: bytes that are UTF-8 become text, and so do integers of more than 64 bits."""
        if isinstance(v, int) and not -(2**63) <= v < 2**64:
            return str(v)
        if isinstance(v, dict):
            return {wire(k): wire(x) for k, x in v.items()}
        if isinstance(v, (list, tuple)):
            return [wire(x) for x in v]
        if isinstance(v, bytes):
            try:
                return v.decode()
            except UnicodeDecodeError:
                return v
        return v

    def answer(body):
        try:
            source = body.decode()
        except UnicodeDecodeError:
            return [(b"!", b"UnicodeDecodeError")] * 2
        return [tried(lambda: shown(salt.utils.yaml.safe_load(source))),
                tried(lambda: shown(wire(salt.utils.yaml.load(source, Loader=SLS) or {})))]

    return answer


def unpaired(v):
    """Maps arrive as lists of pairs in an object, so that keys may be no text."""
    if isinstance(v, dict):
        return {k: unpaired(x) for k, x in v["pairs"]}
    if isinstance(v, list):
        return [unpaired(x) for x in v]
    return v


def targets(root, world):
    import salt.cache
    import salt.config
    import salt.loader
    import salt.utils.minions

    world = json.loads(world)
    master = salt.config.apply_master_config({
        "root_dir": root, "cachedir": root + "/cache", "pki_dir": root + "/pki", "conf_file": root + "/master", "id": "m",
        "nodegroups": world["nodegroups"],
    })
    master["__role"] = "master"
    os.makedirs(root + "/pki/minions")
    cache = salt.cache.factory(master)
    minions = {}
    for name, data in world["minions"].items():
        data = {bank: unpaired(v) for bank, v in data.items()}
        opts = salt.config.DEFAULT_MINION_OPTS.copy()
        opts.update(id=name, file_client="local", cachedir="/nonexistent", extension_modules="/nonexistent", **data)
        minions[name] = opts
        open(os.path.join(root, "pki/minions", name), "w").write("key")
        for bank, v in data.items():
            cache.store(bank, name, v)
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../salt/target/testdata"))
    from memo import Memo

    memo = Memo(cache)
    funcs = dict(salt.loader.matchers(dict(opts, id="nobody", grains={}, pillar={})).items())
    if sorted(salt.utils.minions.CkMinions(master).check_minions("*", "glob")["minions"]) != sorted(minions):
        raise SystemExit("the master of the test does not know its minions")

    def matches(opts, kind, tgt, delimiter):
        """What salt.minion.Minion._target_load asks."""
        func = funcs.get(kind + "_match.match")
        if func is None:
            return False
        try:
            if kind in ("grain", "grain_pcre", "pillar"):
                return bool(func(tgt, delimiter=delimiter or ":", opts=opts, minion_id=opts["id"]))
            return bool(func(tgt, opts=opts, minion_id=opts["id"]))
        except Exception:  # the minion logs it and does not run the job
            return False

    def resolved(kind, tgt, delimiter, greedy):
        ck = salt.utils.minions.CkMinions(master)
        ck.cache = memo
        return json.dumps(sorted(ck.check_minions(tgt, kind, delimiter=delimiter or ":", greedy=greedy)["minions"])).encode()

    def answer(body):
        q = json.loads(body)
        kind, tgt, delimiter = q["sent"]
        parts = [tried(lambda: json.dumps(sorted(name for name, opts in minions.items() if matches(opts, kind, tgt, delimiter))).encode())]
        kind, tgt, delimiter = q["asked"]
        return parts + [tried(resolved, kind, tgt, delimiter, True), tried(resolved, kind, tgt, delimiter, False)]

    return answer


def jinja(root, setup):
    import salt.config
    import salt.loader
    import salt.utils.templates

    setup = json.loads(setup)
    opts = salt.config.DEFAULT_MASTER_OPTS.copy()
    opts.update(salt.config.DEFAULT_MINION_OPTS)
    opts.update(
        id="web1", file_client="local", cachedir=root, pillar_roots={"base": [setup["roots"]]}, file_roots={"base": [setup["roots"]]},
        grains=setup["grains"], pillar=setup["pillar"], conf_file="", extension_modules="", __role="master", saltenv="base",
    )
    funcs = salt.loader.minion_mods(opts)

    def copied(name):
        return lambda *args, **kwargs: copy.deepcopy(funcs[name](*args, **kwargs))

    own = {name: copied(name) for name in setup["functions"]}

    def render(source):
        salt_ = dict(own)
        for name, func in own.items():
            mod, fun = name.split(".", 1)
            salt_.setdefault(mod, lambda: None)
            setattr(salt_[mod], fun, func)
        out = salt.utils.templates.JINJA(
            source, from_str=True, to_str=True, salt=salt_, grains=copy.deepcopy(setup["grains"]), pillar=copy.deepcopy(setup["pillar"]),
            opts=dict(opts), saltenv="base", sls="t", context=None, tmplpath=setup["roots"] + "/t.sls", proxy=None, _pillar_rend=True,
        )
        if not out["result"]:
            raise ValueError(out["data"].strip().rsplit("\n", 1)[-1])
        data = out["data"]
        return data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data

    def answer(body):
        return [tried(render, body.decode())]

    return answer


def main():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, late)
    read, write = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr

    def questions():
        while True:
            head = read.read(4)
            if len(head) < 4:
                return
            yield read.read(struct.unpack(">I", head)[0])

    def put(parts):
        body = b"".join(kind + struct.pack(">I", len(b)) + b for kind, b in parts)
        write.write(struct.pack(">I", len(body)) + body)
        write.flush()

    asked = questions()
    part = sys.argv[1]
    with tempfile.TemporaryDirectory() as root:
        if part in ("targets", "jinja"):
            answer = {"targets": targets, "jinja": jinja}[part](root, next(asked))
            put([])
        else:
            answer = yaml() if part == "yaml" else {"msgpack": msgpack, "globs": globs}[part]
        for body in asked:
            put(answer(body))


main()
