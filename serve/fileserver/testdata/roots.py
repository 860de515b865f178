"""Writes roots.json: what the real Salt file server answers about a tree that the test makes as well.

Run with the Python of a Salt virtual environment: python testdata/roots.py > testdata/roots.json
"""
import json
import logging
import os
import tempfile

logging.disable(logging.CRITICAL)
import salt.config
import salt.fileserver

FILES = {
    "one/hello.txt": "hello\n", "one/sub/hello.txt": "sub\n", "one/sub/.dot": "d", "one/sub/with blank": "b", "one/tree/a.txt": "a",
    "one/tree/d1/b.txt": "b", "one/tree/x.swp": "s", "one/d/f.txt": "f", "one/zero": "", "one/both": "from one", "one/q?x": "query",
    "two/both": "from two", "two/only.txt": "two", "two/ümlaut": "u", "dev/dev.txt": "dev", "dev/both": "from dev",
    "outside/secret": "secret", "outside/odir/deep": "deep", "any_qa/qa.txt": "qa",
}
DIRS = ["one/empty", "one/tree/hollow", "two/empty2"]
LINKS = {
    "one/tree/link.txt": "a.txt", "one/tree/dlink": "d1", "one/tree/up": "../hello.txt", "one/dangling": "nowhere", "one/out": "ROOT/outside/secret",
    "one/outdir": "ROOT/outside/odir", "one/abs": "ROOT/one/hello.txt", "one/outrel": "../outside/secret", "one/danglingout": "/nonexistent/x",
}
VARIANTS = {
    "default": {}, "nofollow": {"fileserver_followsymlinks": False}, "ignorelinks": {"fileserver_ignoresymlinks": True},
    "ignore": {"file_ignore_glob": ["*.swp", "d/*"], "file_ignore_regex": [r"\.dot$", "^sub/"]},
}
PATHS = ["hello.txt", "sub/hello.txt", "sub/./hello.txt", "sub//hello.txt", "sub/../hello.txt", "../outside/secret", "..", ".", "/etc/passwd", "", "sub",
         "sub/..", "x/..", "tree/link.txt", "tree/dlink/b.txt", "tree/dlink", "dangling", "out", "outdir/deep", "abs", "outrel", "zero", "both",
         "both?saltenv=dev", "both?index=1", "both?index=0", "both?index=7", "both?index=x", "both?index=-1", "hello.txt?", "hello.txt?foo=bar", "q?x", "|q?x", "nosuch",
         "only.txt", "dev.txt", "qa.txt", "hello.txt/", "sub/.dot", "sub/with blank", "tree/x.swp", "d/f.txt", "ümlaut", "danglingout"]
ENVS = ["base", "dev", "qa", "nosuch"]


def scrub(v, root):
    if isinstance(v, str):
        return v.replace(root, "ROOT")
    if isinstance(v, bytes):
        return {"bytes": v.decode()}
    if isinstance(v, dict):
        return {k: ("STAT" if k == "stat" else scrub(x, root)) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        if len(v) == 10 and all(isinstance(x, int) for x in v):
            return "STAT"
        return [scrub(x, root) for x in v]
    return v


def call(f, *a):
    try:
        return f(*a)
    except Exception:  # the master answers with the empty text
        return ""


cases = []
root = os.path.realpath(tempfile.mkdtemp())
for path, text in FILES.items():
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    open(os.path.join(root, path), "w").write(text)
for path in DIRS:
    os.makedirs(os.path.join(root, path))
for path, to in LINKS.items():
    os.symlink(to.replace("ROOT", root), os.path.join(root, path))
for variant, options in VARIANTS.items():
    opts = salt.config.master_config("/nonexistent")
    opts["cachedir"] = os.path.join(tempfile.mkdtemp())
    opts["file_buffer_size"] = 4
    opts["file_roots"] = {"base": [root + "/one", root + "/two"], "dev": [root + "/dev"], "__env__": [root + "/any___env__"]}
    opts.update(options)
    fs = salt.fileserver.Fileserver(opts)

    def ask(cmd, load, f):
        reply = call(f, dict(load))
        if cmd == "_file_envs":
            reply = sorted(reply)
        cases.append({"variant": variant, "cmd": cmd, "load": load, "reply": scrub(reply, root)})

    ask("_file_envs", {}, lambda load: fs.file_envs(load))
    for path in PATHS:
        for env in ENVS:
            load = {"path": path, "saltenv": env}
            ask("_file_find", load, fs._find_file)
            ask("_file_hash", load, fs.file_hash)
            ask("_file_hash_and_stat", load, fs.file_hash_and_stat)
            ask("_serve_file", dict(load, loc=0), fs.serve_file)
    for loc in (0, 3, 4, 6, 100, -1):
        ask("_serve_file", {"path": "hello.txt", "saltenv": "base", "loc": loc}, fs.serve_file)
    for load in ({}, {"path": "hello.txt"}, {"saltenv": "base"}):
        for cmd, f in (("_file_find", fs._find_file), ("_file_hash", fs.file_hash), ("_file_hash_and_stat", fs.file_hash_and_stat), ("_serve_file", fs.serve_file)):
            ask(cmd, load, f)
    for env in ENVS + ["__env__"]:
        for prefix in (None, "", "tr", "tree/", "/tree/d1", "nosuch"):
            load = {"saltenv": env}
            if prefix is not None:
                load["prefix"] = prefix
            for cmd, f in (("_file_list", fs.file_list), ("_file_list_emptydirs", fs.file_list_emptydirs), ("_dir_list", fs.dir_list), ("_symlink_list", fs.symlink_list)):
                ask(cmd, load, f)
    for cmd, f in (("_file_list", fs.file_list), ("_symlink_list", fs.symlink_list)):
        ask(cmd, {}, f)
print(json.dumps({"files": FILES, "dirs": DIRS, "links": LINKS, "variants": VARIANTS, "cases": cases}, indent=0, ensure_ascii=False))
