"""Render a corpus with Salt's own renderers: reference.py ROOTS < cases.json > results.json

A case is {name, sls, text, opts}; a result {name, text}, {name, value} with the
value as Salt packs it for the wire, in base64, or {name, error}.
"""

import base64
import json
import logging
import os
import sys
import tempfile

import salt.config
import salt.loader
import salt.payload
from salt.template import compile_template

roots = os.path.abspath(sys.argv[1])
logging.disable(logging.CRITICAL)
GRAINS = json.load(open(os.path.join(os.path.dirname(roots), "grains.json")))
PILLAR = json.load(open(os.path.join(os.path.dirname(roots), "pillar.json")))


def renderers(extra, scratch):
    opts = salt.config.DEFAULT_MASTER_OPTS.copy()
    opts.update(salt.config.DEFAULT_MINION_OPTS)
    opts.update(
        id="web1", file_client="local", cachedir=scratch, pillar_roots={"base": [roots]}, file_roots={"base": [roots]},
        grains=GRAINS, pillar=PILLAR, conf_file="", extension_modules="", __role="master", saltenv="base",
    )
    opts.update(extra)
    return salt.loader.render(opts, salt.loader.minion_mods(opts))


results = []
with tempfile.TemporaryDirectory() as scratch:
    current = rend = None
    for case in json.load(sys.stdin):
        if case["opts"] != current:  # the last loader's opts are every loader's
            current = case["opts"]
            rend = renderers(current, scratch)
        path = os.path.join(roots, case["sls"].replace(".", "/") + ".sls")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", newline="", encoding="utf-8") as file:
            file.write(case["text"])
        try:
            value = compile_template(path, rend, "jinja|yaml", [], [], "base", case["sls"], _pillar_rend=True)
            if hasattr(value, "read"):
                value = value.read()
            if isinstance(value, str):
                results.append({"name": case["name"], "text": value})
                continue
            packed = salt.payload.dumps(value)
            results.append({"name": case["name"], "value": base64.b64encode(packed).decode()})
        except Exception as exc:  # what pillar catches
            results.append({"name": case["name"], "error": str(exc).replace(roots, "/roots")})
        finally:
            os.remove(path)
json.dump(results, sys.stdout, indent=0, sort_keys=True)
