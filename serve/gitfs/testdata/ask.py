"""Asks Salt's own gitfs what it serves: questions as JSON on stdin, answers on stdout."""

import copy
import hashlib
import json
import logging
import os
import sys
import tempfile

import salt.config
import salt.fileserver.gitfs
import salt.pillar.git_pillar
import salt.utils.gitfs

logging.disable(logging.CRITICAL)


def answer(question, root):
    opts = copy.deepcopy(salt.config.DEFAULT_MASTER_OPTS)
    cachedir = tempfile.mkdtemp(dir=root)
    opts.update({"cachedir": cachedir, "sock_dir": cachedir, "__role": "master"})
    opts["fileserver_backend"] = ["gitfs"]
    opts["gitfs_provider"] = "gitpython"
    opts.update(question["options"])
    salt.utils.gitfs.GitFS.instance_map.clear()
    # The parameters of authentication belong to the other provider.
    salt.utils.gitfs.AUTH_PROVIDERS = ("pygit2", "gitcli", "gitpython")
    fs = salt.utils.gitfs.GitFS(
        opts,
        opts["gitfs_remotes"],
        per_remote_overrides=salt.fileserver.gitfs.PER_REMOTE_OVERRIDES,
        per_remote_only=salt.fileserver.gitfs.PER_REMOTE_ONLY,
    )
    fs.update()
    envs = fs.envs(ignore_cache=True)
    out = {"envs": envs, "env": {}}
    for env in sorted(set(envs + question.get("ask", []))):
        files = fs.file_list({"saltenv": env})
        one = {
            "files": files,
            "dirs": fs.dir_list({"saltenv": env}),
            "links": fs.symlink_list({"saltenv": env}),
            "contents": {},
        }
        for path in files + ["absent", "states", "link/../top.sls"]:
            try:
                found = fs.find_file(path, env)
            except Exception as exc:  # pylint: disable=broad-except
                one["contents"][path] = "error"
                continue
            if not found["path"]:
                one["contents"][path] = None
                continue
            with open(found["path"], "rb") as f:
                data = f.read()
            load = {"path": path, "saltenv": env, "loc": 0}
            hsum = fs.file_hash(load, found)["hsum"]
            one["contents"][path] = [
                hashlib.sha256(data).hexdigest()[:16],
                found["stat"][0],
                hsum if isinstance(hsum, str) else hsum.decode(),
            ]
        out["env"][env] = one
    return out


def pillars(question, root):
    """The folders of git_pillar for each pair of saltenv and pillarenv."""
    out = {}
    opts = copy.deepcopy(salt.config.DEFAULT_MASTER_OPTS)
    opts["__role"] = "master"
    opts["git_pillar_provider"] = "gitpython"
    opts.update(question["options"])
    for saltenv in (None, "base", "dev"):
        for pillarenv in (None, "dev", "qa"):
            cachedir = tempfile.mkdtemp(dir=root)
            opts["cachedir"] = opts["sock_dir"] = cachedir
            opts["saltenv"], opts["pillarenv"] = saltenv, pillarenv
            git = salt.utils.gitfs.GitPillar(
                copy.deepcopy(opts),
                question["pillar"],
                per_remote_overrides=salt.pillar.git_pillar.PER_REMOTE_OVERRIDES,
                per_remote_only=salt.pillar.git_pillar.PER_REMOTE_ONLY,
                global_only=salt.pillar.git_pillar.GLOBAL_ONLY,
            )
            git.fetch_remotes()
            git.checkout()
            dirs = []
            for path, env in git.pillar_dirs.items():
                if env == "__env__":
                    env = pillarenv or saltenv or opts["git_pillar_base"]
                files = []
                for at, _, names in os.walk(path, followlinks=True):
                    for name in names:
                        full = os.path.join(at, name)
                        rel = os.path.relpath(full, path)
                        if ".git" not in rel.split("/") and os.path.isfile(full):
                            if os.path.realpath(full).startswith(root):
                                files.append(rel)
                mounted = path in git.pillar_linked_dirs
                dirs.append([env, mounted, sorted(files)])
            out[f"{saltenv} {pillarenv}"] = dirs
    return {"pillars": out}


def main():
    asked = json.load(sys.stdin)
    answers = {}
    with tempfile.TemporaryDirectory() as root:
        for question in asked:
            try:
                ask = pillars if question.get("pillar") else answer
                answers[question["name"]] = ask(question, root)
            except salt.exceptions.FileserverConfigError as exc:
                answers[question["name"]] = {"refused": True}
    json.dump(answers, sys.stdout, indent=1, sort_keys=True)


main()
