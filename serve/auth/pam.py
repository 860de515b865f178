"""Asks PAM about one user. Standard input: a JSON map of service, user and password. Standard output: a JSON map of ok (true or false) and
groups (names), or of error (a text without the password)."""

import ctypes
import ctypes.util
import grp
import json
import os
import pwd
import resource
import sys

HIDDEN, SHOWN = 1, 2  # styles of questions that want an answer
SUCCESS, CONVERSATION_FAILED = 0, 19
MAX_QUESTIONS = 32


class Question(ctypes.Structure):
    _fields_ = [("style", ctypes.c_int), ("text", ctypes.c_char_p)]


class Answer(ctypes.Structure):
    _fields_ = [("text", ctypes.c_void_p), ("code", ctypes.c_int)]


CONVERSE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(ctypes.POINTER(Question)),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


class Conversation(ctypes.Structure):
    _fields_ = [("function", CONVERSE), ("data", ctypes.c_void_p)]


def authenticated(service, user, password):
    libc = ctypes.CDLL(None)
    libc.calloc.restype = libc.strdup.restype = ctypes.c_void_p
    libc.calloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    libc.strdup.argtypes = [ctypes.c_char_p]
    pam = ctypes.CDLL(ctypes.util.find_library("pam") or "libpam.so.0")
    pam.pam_start.argtypes = [
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.POINTER(Conversation),
        ctypes.POINTER(ctypes.c_void_p),
    ]
    for name in ("pam_authenticate", "pam_acct_mgmt", "pam_end"):
        getattr(pam, name).argtypes = [ctypes.c_void_p, ctypes.c_int]

    def converse(count, questions, answers, _):
        if not 0 < count <= MAX_QUESTIONS:
            return CONVERSATION_FAILED
        # PAM frees what it is given.
        memory = libc.calloc(count, ctypes.sizeof(Answer))
        if not memory:
            return CONVERSATION_FAILED
        given = (Answer * count).from_address(memory)
        for i in range(count):
            style = questions[i].contents.style
            if style == HIDDEN:
                given[i].text = libc.strdup(password)
            elif style == SHOWN:
                given[i].text = libc.strdup(user)
        answers[0] = memory
        return SUCCESS

    function = CONVERSE(converse)
    handle = ctypes.c_void_p()
    result = pam.pam_start(service, user, ctypes.byref(Conversation(function, None)), ctypes.byref(handle))
    if result != SUCCESS:
        raise OSError("pam_start: %d" % result)
    result = pam.pam_authenticate(handle, 0)
    if result == SUCCESS:
        result = pam.pam_acct_mgmt(handle, 0)
    pam.pam_end(handle, result)
    return result == SUCCESS


def groups(user):
    try:
        numbers = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    except KeyError:
        return []
    names = []
    for number in numbers:
        try:
            names.append(grp.getgrgid(number).gr_name)
        except KeyError:
            pass
    return sorted(names)


def main():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would hold the password
    asked = json.load(sys.stdin.buffer)
    try:
        texts = [asked[name].encode() for name in ("service", "user", "password")]
        ok = authenticated(*texts)
        reply = {"ok": ok, "groups": groups(asked["user"]) if ok else []}
    except Exception as exc:
        reply = {"error": "%s: %s" % (type(exc).__name__, exc)}
    sys.stdout.write(json.dumps(reply))


main()
