"""Run orchestrations with Salt's own runner.

Usage: python states.py ROOT RUN..., with the Python of a Salt installation. A RUN is a YAML map of the arguments of
state.orchestrate. Prints a JSON list of what the runner returned. The options are those of ROOT/master.
"""

import json
import logging
import sys

logging.disable(logging.CRITICAL)

import salt.config
import salt.loader
import salt.minion
import salt.utils.yaml


class Bus:
    def fire_event(self, *args, **kwargs):
        return True


def main():
    said = []
    for run in sys.argv[2:]:
        opts = salt.config.master_config(sys.argv[1] + "/master")
        opts["user"] = "root"
        runners = salt.loader.runner(opts, utils=salt.loader.utils(opts))
        runners.pack["__jid_event__"] = Bus()
        args = salt.utils.yaml.safe_load(run)
        said.append(runners["state.orchestrate"](orchestration_jid="20260101000000000000", **args)["data"])
    json.dump(said, sys.stdout, default=lambda v: dict(v) if hasattr(v, "items") else list(v))


main()
