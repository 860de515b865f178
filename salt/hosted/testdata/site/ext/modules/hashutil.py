"""Stands in place of Salt's own, and of the native one."""


def md5_digest(text):
    return "digest of " + text
