"""Match targets as minions do, with the matchers of a Salt installation.

The first line of the input is a JSON object of minions: id to grains and pillar, as lists of pairs, so that keys may be no text. Each further line
is a question: kind, target, delimiter. Each answer is a line: a JSON list of the ids that match, or null if it took more than two seconds.
"""

import json
import logging
import signal
import sys

logging.disable(logging.CRITICAL)

import salt.config
import salt.loader


class Late(BaseException):
    pass


def late(signum, frame):
    raise Late()


def value(v):
    """What the master packs: maps are lists of pairs in an object."""
    if isinstance(v, dict):
        return {k: value(x) for k, x in v["pairs"]}
    if isinstance(v, list):
        return [value(x) for x in v]
    return v


def matches(funcs, opts, kind, tgt, delimiter):
    """What salt.minion.Minion._target_load asks, for one of several minions in this process."""
    func = funcs.get(kind + "_match.match")
    if func is None:
        return False
    if kind in ("grain", "grain_pcre", "pillar"):
        return bool(func(tgt, delimiter=delimiter or ":", opts=opts, minion_id=opts["id"]))
    return bool(func(tgt, opts=opts, minion_id=opts["id"]))


def main():
    out = sys.stdout
    sys.stdout = sys.stderr
    minions = {}
    for name, data in json.loads(sys.stdin.readline()).items():
        opts = salt.config.DEFAULT_MINION_OPTS.copy()
        opts.update(id=name, grains=value(data["grains"]), pillar=value(data["pillar"]), file_client="local", cachedir="/nonexistent", extension_modules="/nonexistent")
        minions[name] = opts
    funcs = dict(salt.loader.matchers(dict(opts, id="nobody", grains={}, pillar={})).items())
    signal.signal(signal.SIGALRM, late)
    for line in sys.stdin:
        kind, tgt, delimiter = json.loads(line)
        found = []
        try:
            signal.setitimer(signal.ITIMER_REAL, 2)
            for name, opts in minions.items():
                try:
                    if matches(funcs, opts, kind, tgt, delimiter):
                        found.append(name)
                except Exception:  # the minion logs it and does not run the job
                    pass
            found.sort()
        except Late:
            found = None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        out.write(json.dumps(found) + "\n")
        out.flush()


main()
