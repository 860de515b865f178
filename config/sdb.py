"""Look sdb:// addresses of a master's configuration up with Salt's drivers: standard input and descriptor 3 speak JSON."""

import json
import os
import sys

question = json.load(sys.stdin)

import salt.config  # noqa: E402
import salt.utils.sdb  # noqa: E402

resolve = salt.config.apply_sdb
salt.config.apply_sdb = lambda opts, *args: opts  # each address is looked up by itself
opts = salt.config.master_config(question["conf_file"])
salt.config.apply_sdb = resolve
opts["__role"] = "master"
found, failed = {}, {}
for address in question["addresses"]:
    try:
        value = salt.utils.sdb.sdb_get(address, opts)
        if value != address:
            found[address] = json.loads(json.dumps(value))
    except Exception as exc:
        failed[address] = f"{type(exc).__name__}: {exc}"
with os.fdopen(3, "w") as out:
    json.dump({"found": found, "failed": failed}, out)
