"""Runs Salt's own execution functions: a list of [function, args, kwargs] as JSON on stdin, a list of answers as JSON on stdout.

Run by TestCallsAreSalts with the interpreter of a virtual environment of Salt, and a folder as its argument.
"""
import json
import logging
import sys

import salt.config
import salt.loader
import salt.utils.secret

logging.disable(logging.CRITICAL)


def plain(value):
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return value.decode()
    return value


GRAINS = {
    "id": "web1", "os_family": "Debian", "osrelease": "12", "host": "web1", "fqdn": "web1.example", "os": "Debian",
    "roles": ["web", "db"], "serialnumber": "12345678",
    "kernel": "Linux", "own_grain": "g", "own_map": {"g": 4},
}
opts = salt.config.minion_config(None)
opts.update(cachedir=sys.argv[1], file_client="local", grains=GRAINS, id="web1", pillar={
    "master": {"own.b": 2, "own_map": {"a": 3, "c": 3}, "own_list": [3], "own_text": "master", "own_master": "m"},
    "own_map": {"a": 2, "b": 2}, "own_list": [2], "own_text": "pillar", "own_pillar": "p"})
opts.update({"own.a": 1, "own_map": {"a": 1}, "own_list": [1], "own_text": "opts", "own_none": None,
             "own_sdb": "sdb://own_profile/PATH", "own_profile": {"driver": "env"}})
opts["pillar_roots"] = {"base": [sys.argv[1] + "/pillar", sys.argv[1] + "/more"], "dev": [sys.argv[1] + "/dev"]}
opts["file_roots"] = {"base": [sys.argv[1] + "/tree"], "dev": [sys.argv[1] + "/dev"]}
functions = salt.loader.minion_mods(opts, utils=salt.loader.utils(opts))
salt.utils.secret.mask_pillar.set(False)  # as for templates
answers = []
for fun, args, kwargs in json.load(sys.stdin):
    try:
        value = plain(functions[fun](*args, **kwargs))
        answers.append({"value": value, "keys": list(value) if isinstance(value, dict) else None})
    except Exception as exc:
        answers.append({"error": type(exc).__name__, "text": str(exc)})
json.dump(answers, sys.stdout)
