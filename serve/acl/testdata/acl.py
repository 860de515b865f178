"""Asks Salt's own access control the questions of standard input (JSON) and prints its answers, one for each.

A question of publisher_acl: {"acl": publisher_acl, "blacklist": publisher_acl_blacklist, "user", "fun": text or list, "arg": list, "minions": list}.
Of external_auth: {"external": a back end's section, "groups", "permissive", "form": "" for an order, runner or wheel, "kwarg": map} beside "user",
"fun", "arg", "minions".
An answer: "blocked", "unknown" (no entry for the user), "syntax", true or false.
"""

import fnmatch
import json
import sys

import salt.acl
import salt.config
import salt.utils.master
import salt.utils.minions

opts = salt.config.DEFAULT_MASTER_OPTS.copy()
known = ["web1", "web2", "db1"]


class Minions(salt.utils.minions.CkMinions):
    """Salt's checks, over minions of which only the ids are known: all targets here are globs."""

    def __init__(self):
        self.opts = opts

    def check_minions(self, expr, *_, **__):
        return {"minions": fnmatch.filter(known, expr), "missing": []}


minions = Minions()


def external(q):
    """What external_auth says. The groups are told."""
    opts["permissive_acl"] = q.get("permissive", False)
    rights = minions.fill_auth_list(q["external"], q["user"], q.get("groups") or [])
    form = q.get("form")
    if not form:
        return bool(
            minions.auth_check(
                rights, q["fun"], q["arg"], "*", "glob", minions=q["minions"], whitelist=["saltutil.find_job"]
            )
        )
    said = minions.spec_check(rights, q["fun"], {"arg": q["arg"], "kwarg": q.get("kwarg") or {}}, form)
    return "syntax" if isinstance(said, dict) else bool(said)


def answer(q):
    if "external" in q:
        return external(q)
    lists = salt.acl.PublisherACL(q.get("blacklist") or {})
    if lists.user_is_blacklisted(q["user"]) or lists.cmd_is_blacklisted(q["fun"]):
        return "blocked"
    rights = salt.utils.master.get_values_of_matching_keys(q["acl"], q["user"])
    if not rights:
        return "unknown"
    return bool(
        minions.auth_check(
            rights, q["fun"], q["arg"], "*", "glob", minions=q["minions"], whitelist=["saltutil.find_job"]
        )
    )


print(json.dumps([answer(q) for q in json.load(sys.stdin)]))
