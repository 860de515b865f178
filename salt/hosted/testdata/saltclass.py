"""Ask Salt's own module saltclass of master_tops for the states of minions.

Usage: python saltclass.py FOLDER, with the Python of a Salt installation and JSON of {"grains", "ids"} on stdin. Prints JSON
of id to answer, null where the module fails.
"""

import json
import logging
import sys

logging.disable(logging.CRITICAL)

import salt.config
import salt.loader


def main():
    asked = json.load(sys.stdin)
    opts = salt.config.apply_master_config({"id": "master1", "master_tops": {"saltclass": {"path": sys.argv[1]}}})
    tops = salt.loader.tops(opts)
    answers = {}
    for minion_id in asked["ids"]:
        try:
            answers[minion_id] = tops["saltclass"](opts={"id": minion_id, "saltenv": "base"}, grains=asked["grains"])
        except Exception:
            answers[minion_id] = None
    json.dump(answers, sys.stdout)


main()
