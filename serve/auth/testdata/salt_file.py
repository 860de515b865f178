"""Asks Salt's own back end file. Standard input (JSON): a list of [parameters, [[user, password], ...]]. Standard output: for each whether it was
confirmed; what raises counts as refused, as in Salt's master."""

import json
import sys

import salt.auth.file
import salt.modules.hashutil

salt.auth.file.__salt__ = {"hashutil.digest": salt.modules.hashutil.digest}
salt.modules.hashutil.__salt__ = {
    "hashutil.md5_digest": salt.modules.hashutil.md5_digest,
    "hashutil.sha256_digest": salt.modules.hashutil.sha256_digest,
    "hashutil.sha512_digest": salt.modules.hashutil.sha512_digest,
}


def confirmed(parameters, user, password):
    salt.auth.file.__opts__ = {"external_auth": {"file": parameters}}
    try:
        return bool(salt.auth.file.auth(user, password))
    except Exception:
        return False


print(json.dumps([[confirmed(p, *who) for who in users] for p, users in json.load(sys.stdin)]))
