"""Golden vectors for package wire, made and read by the real Salt library.

    <venv of salt 3008>/bin/python vectors.py make > vectors.json
    <any venv of salt>/bin/python vectors.py read < questions.json > answers.json

make  writes what the library packs, seals, signs and answers. The RSA keys in it are new each time and serve no other end.
read  takes messages made by the Go side and says what the library's minion makes of them.

Bytes are hexadecimal everywhere.
"""

import asyncio
import collections
import ctypes
import datetime
import hashlib
import json
import logging
import multiprocessing
import os
import pathlib
import sys
import tempfile
import types
from unittest import mock

import salt.channel.client
import salt.channel.server
import salt.config
import salt.crypt
import salt.daemons.masterapi
import salt.exceptions
import salt.master
import salt.payload
import salt.utils.crypt
import salt.utils.minions
import salt.version
from salt.defaults import _Constant

AES = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc="
SESSION = "NzY1NDMyMTAvLi0sKyopKCcmJSQjIiEgHx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA="
NONCE = "0123456789abcdef0123456789abcdef"
TOKEN = b"a token that the master must give back"
ALGORITHMS = [("OAEP-SHA1", "PKCS1v15-SHA1"), ("OAEP-SHA224", "PKCS1v15-SHA224")]


def values():
    """Name to value: every row of the packing table."""
    yield from {
        "nil": None,
        "true": True,
        "false": False,
        "text 0": "",
        "text 31": "a" * 31,
        "text 32": "a" * 32,
        "text 255": "b" * 255,
        "text 256": "b" * 256,
        "text 65535": "c" * 65535,
        "text 65536": "c" * 65536,
        "text utf-8": "Gr\u00fc\u00dfe \U0001f9c2",
        "bytes": b"\xff\x00\xfe",
        "bytes 32": b"\xff" * 32,
        "bytes 256": b"\xff" * 256,
        "list": [1, "two", None],
        "tuple": (1, 2),
        "list 15": list(range(15)),
        "list 16": list(range(16)),
        "list 65536": [0] * 65536,
        "set of one": {7},
        "map": {"b": 1, "a": {"z": [], "y": {}}},
        "map 16": {str(i): i for i in range(16)},
        "map 65536": {i: 0 for i in range(65536)},
        "map odd keys": {2: "int", None: "nil", True: "bool", -3: "neg", b"\xff": "bytes"},
        "ordered map": collections.OrderedDict([("z", 1), ("a", 2)]),
        "float": 1.5,
        "float inf": float("inf"),
        "int 0": 0,
        "int 127": 127,
        "int 128": 128,
        "int 255": 255,
        "int 256": 256,
        "int 65535": 65535,
        "int 65536": 65536,
        "int 2^32-1": 2**32 - 1,
        "int 2^32": 2**32,
        "int 2^63": 2**63,
        "int 2^64-1": 2**64 - 1,
        "int 2^64": 2**64,
        "int -1": -1,
        "int -32": -32,
        "int -33": -33,
        "int -128": -128,
        "int -129": -129,
        "int -32769": -32769,
        "int -2^31-1": -(2**31) - 1,
        "int -2^63": -(2**63),
        "int -2^63-1": -(2**63) - 1,
        "datetime": datetime.datetime(2026, 1, 2, 3, 4, 5, 678901),
        "date": datetime.date(2026, 1, 2),
        "constant": _Constant("NOT_SET"),
        "constant text": _Constant("C", "x" * 40),
        "constant bytes": _Constant("B", b"abc"),
        "constant fixext": _Constant("A"),
        "return": {
            "cmd": "_return", "id": "m1", "jid": "20260101000000000000", "return": True,
            "retcode": 0, "success": True, "fun": "test.ping",
        },
    }.items()


def short(packed):
    """Hexadecimal, or for long values their SHA-256."""
    return packed.hex() if len(packed) < 2000 else "sha256:" + hashlib.sha256(packed).hexdigest()


def run(function, *args):
    """Call a coroutine function: of asyncio, or of the Tornado in Salt 3007 or inside Salt 3006."""

    async def body():
        got = function(*args)
        if hasattr(got, "done") and got.done():
            return got.result()
        return await got

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(body())
    finally:
        loop.close()


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)


def public(private):
    """PEM of the public half of a PEM private key."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(private.encode(), None)
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode()


class Master:
    """The request channel of a real master, without sockets."""

    def __init__(self, root, key, **opts):
        self.root = root
        self.opts = dict(salt.config.DEFAULT_MASTER_OPTS)
        self.opts.update(
            {
                "id": "master", "__role": "master", "pki_dir": str(root / "pki"), "cachedir": str(root / "cache"),
                "sock_dir": str(root / "sock"), "key_dir": str(root / "key"), "extension_modules": str(root / "ext"),
                "auth_events": False, "minimum_auth_version": 0, "permissive_pki_access": True,
                "worker_pools_enabled": False, "cluster_id": None, "con_cache": False, "user": "root",
            }
        )
        self.opts.update(opts)
        for folder in ("minions", "minions_pre", "minions_rejected", "minions_denied", "minions_autosign"):
            (root / "pki" / folder).mkdir(parents=True, exist_ok=True)
        for folder in ("sock", "cache/sessions"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        write(root / "pki" / "master.pem", key)
        write(root / "pki" / "master.pub", public(key))
        salt.master.SMaster.secrets["aes"] = {
            "secret": multiprocessing.Array(ctypes.c_char, AES.encode()),
            "serial": multiprocessing.Value(ctypes.c_longlong, lock=False),
        }
        c = self.channel = salt.channel.server.ReqServerChannel(self.opts, None)
        c.event = mock.Mock()
        c.auto_key = salt.daemons.masterapi.AutoKey(self.opts)
        c.cache_cli = False
        c.ckminions = salt.utils.minions.CkMinions(self.opts)
        c.master_key = salt.crypt.MasterKeys(self.opts)
        c.crypticle = salt.crypt.Crypticle(self.opts, AES)
        c.payload_handler = self.serve
        self.function = "send"
        self.value = None

    def accept(self, minion, pub, folder="minions"):
        write(self.root / "pki" / folder / minion, pub)
        write(self.root / "cache" / "sessions" / minion, SESSION)

    async def serve(self, payload):
        if payload["enc"] not in ("aes", "clear"):
            raise KeyError(payload["enc"])
        if payload["enc"] == "clear":
            return {}, {"fun": "send_clear"}
        return self.value, {"fun": self.function, "key": "pillar", "tgt": payload["load"].get("id")}

    def answer(self, request):
        """The packed reply to a packed request; None if the worker would never answer."""
        try:
            reply = run(self.channel.handle_message, salt.payload.loads(request))
        except Exception:  # pylint: disable=broad-except
            return None
        return salt.payload.dumps(reply)


class Minion:
    """The request and publish channel of a real minion, without sockets."""

    def __init__(self, root, key, minion="m1", master_pub=None, enc=ALGORITHMS[0][0], sig=ALGORITHMS[0][1], **opts):
        self.opts = dict(salt.config.DEFAULT_MINION_OPTS)
        self.opts.update(
            {
                "id": minion, "__role": "minion", "pki_dir": str(root / "pki"), "cachedir": str(root / "cache"),
                "master_uri": "tcp://127.0.0.1:4506", "master_ip": "127.0.0.1", "user": "root",
                "encryption_algorithm": enc, "signing_algorithm": sig, "permissive_pki_access": True,
                "rejected_retry": True, "request_channel_timeout": 1, "request_channel_tries": 1,
            }
        )
        self.opts.update(opts)
        write(root / "pki" / "minion.pem", key)
        write(root / "pki" / "minion.pub", public(key))
        if master_pub:
            write(root / "pki" / "minion_master.pub", master_pub)
        a = self.auth = object.__new__(salt.crypt.AsyncAuth)
        a.opts = self.opts
        a.token = TOKEN
        if hasattr(salt.crypt.PrivateKey, "from_str"):
            a.cache = salt.cache.Cache(self.opts, driver="localfs_key")
        a.pub_path = os.path.join(self.opts["pki_dir"], "minion.pub")
        a.rsa_path = os.path.join(self.opts["pki_dir"], "minion.pem")
        a.mpub = "minion_master.pub"
        a._private_key = None
        a._creds = {}
        a._authenticate_future = mock.Mock(done=lambda: True, exception=lambda: None)
        a._crypticle = salt.crypt.Crypticle(self.opts, AES)
        a._session_crypticle = salt.crypt.Crypticle(self.opts, SESSION)

        async def refuse():
            raise salt.exceptions.AuthenticationError("would sign in again")

        a.authenticate = refuse

    def requests(self, reply=None):
        """A request channel whose transport answers with reply, with NONCE as the only nonce."""
        sent = []

        async def send(load, timeout=None, **_):
            sent.append(salt.payload.dumps(load))
            return salt.payload.loads(reply) if reply is not None else None

        transport = types.SimpleNamespace(send=send, ttype="zeromq")
        return salt.channel.client.AsyncReqChannel(self.opts, transport, self.auth), sent

    def send(self, load, reply=None, pillar=False, raw=False):
        """Send a load as the minion does. Returns the request's bytes and the opened reply."""
        channel, sent = self.requests(reply)
        fixed = mock.Mock(return_value=types.SimpleNamespace(hex=NONCE))
        with mock.patch("uuid.uuid4", fixed):
            try:
                if pillar:
                    got = run(channel.crypted_transfer_decode_dictentry, load, "pillar")
                else:
                    got = run(channel._crypted_transfer, load, 1, raw)
            except Exception as exc:  # pylint: disable=broad-except
                got = exc
        return sent[0], got

    def receive(self, payload):
        """The load of a publication."""
        channel = object.__new__(salt.channel.client.AsyncPubChannel)
        channel.opts, channel.auth = self.opts, self.auth
        channel.master_pubkey_path = os.path.join(self.opts["pki_dir"], "minion_master.pub")
        return run(channel._decode_payload, salt.payload.loads(payload))


def library_key(root, text):
    path = root / "some.pem"
    write(path, text)
    return salt.crypt.PrivateKey.from_file(str(path)) if hasattr(salt.crypt.PrivateKey, "from_file") else salt.crypt.PrivateKey(str(path))


def make_keys():
    from cryptography.hazmat.primitives import serialization

    out = {name: salt.crypt.gen_keys(2048)[0] for name in ("master", "minion", "sign")}
    out["big"] = salt.crypt.gen_keys(4096)[0]
    key = serialization.load_pem_private_key(out["minion"].encode(), None)
    secret = serialization.BestAvailableEncryption(b"open sesame")
    pem, forms = serialization.Encoding.PEM, serialization.PrivateFormat
    out["minion encrypted"] = key.private_bytes(pem, forms.TraditionalOpenSSL, secret).decode()
    out["minion pkcs8"] = key.private_bytes(pem, forms.PKCS8, serialization.NoEncryption()).decode()
    out["minion pkcs8 encrypted"] = key.private_bytes(pem, forms.PKCS8, secret).decode()
    return out


def make_signin(root, keys):
    """Sign-in requests of a real minion with the answers of a real master."""
    master = Master(root / "master", keys["master"])
    pub = public(keys["minion"])
    for state, folder in (("accepted", "minions"), ("rejected", "minions_rejected"), ("pending", "minions_pre")):
        master.accept(state, pub, folder)
    master.accept("denied", public(keys["sign"]))
    for version in range(4):
        for enc, sig in ALGORITHMS:
            for cached in (None, public(keys["master"])):
                for state in ("accepted", "rejected", "pending", "denied", "new", "../up"):
                    if state not in ("accepted", "pending") and (cached or enc != ALGORITHMS[0][0]):
                        continue  # these differ in nothing else
                    folder = pathlib.Path(tempfile.mkdtemp(dir=root))
                    minion = Minion(folder, keys["minion"], state, cached, enc, sig)
                    load = minion.auth.minion_sign_in_payload()
                    request = salt.payload.dumps({"enc": "clear", "load": load, "version": version})
                    yield {
                        "state": state, "version": version, "enc": enc, "sig": sig, "cached": bool(cached),
                        "nonce": load["nonce"], "request": request.hex(), "reply": master.answer(request).hex(),
                    }


def make_refusals(root, keys):
    """Requests that a real master refuses, or opens, with what it answers; null where its worker stops answering."""
    pub = public(keys["minion"])
    master = Master(root / "master", keys["master"])
    master.accept("m1", pub)
    session = salt.crypt.Crypticle(master.opts, SESSION)
    aes = salt.crypt.Crypticle(master.opts, AES)
    tok = library_key(root, keys["minion"]).encrypt(b"salt")
    other = library_key(root, keys["sign"]).encrypt(b"salt")
    wrong = library_key(root, keys["minion"]).encrypt(b"pepper")
    good = {"cmd": "_return", "id": "m1", "nonce": NONCE, "ts": 1, "tok": tok}

    def without(key, **more):
        return {k: v for k, v in {**good, **more}.items() if k != key}

    def v3(load, minion="m1", key=session, **more):
        return {"enc": "aes", "load": key.dumps(load), "version": 3, "id": minion, **more}

    def v2(load, key=aes, **more):
        return {"enc": "aes", "load": key.dumps(load), "version": 2, **more}

    sealed = session.dumps(good)
    cases = {
        "int": 1,
        "text": "hello",
        "nil": None,
        "list": [1],
        "map without enc": {"load": {}},
        "map without load": {"enc": "clear"},
        "clear load list": {"enc": "clear", "load": [1], "version": 3},
        "clear load text": {"enc": "clear", "load": "x", "version": 3},
        "pub load text": {"enc": "pub", "load": "x", "version": 3},
        "clear no cmd": {"enc": "clear", "load": {}, "version": 3},
        "clear id null byte": {"enc": "clear", "load": {"id": "a\0b"}, "version": 3},
        "clear id int": {"enc": "clear", "load": {"id": 5}, "version": 3},
        "clear id nil": {"enc": "clear", "load": {"id": None}, "version": 3},
        "clear id true": {"enc": "clear", "load": {"id": True}, "version": 3},
        "clear id float": {"enc": "clear", "load": {"id": 2.0}, "version": 3},
        "clear id big float": {"enc": "clear", "load": {"id": 1e30}, "version": 3},
        "clear id small float": {"enc": "clear", "load": {"id": 1.5e-7}, "version": 3},
        "clear id bytes": {"enc": "clear", "load": {"id": b"\xff'\n\\x"}, "version": 3},
        "clear id datetime": {"enc": "clear", "load": {"id": datetime.datetime(2026, 1, 2, 3, 4, 5)}, "version": 3},
        "foo": {"enc": "foo", "load": {}, "version": 3},
        "foo load text": {"enc": "foo", "load": "x", "version": 3},
        "version text": {"enc": "clear", "load": {}, "version": "abc"},
        "version digits": v3(good, version="3"),
        "version spaced digits": v3(good, version=" 3 "),
        "version 9": v3(good, version=9),
        "version true": {"enc": "clear", "load": {}, "version": True},
        "version list": {"enc": "clear", "load": {}, "version": [3]},
        "version nil": {"enc": "clear", "load": {}, "version": None},
        "v3": v3(good),
        "v3 no ts": v3(without("ts")),
        "v3 no nonce": v3(without("nonce")),
        "v3 bytes for text": {k.encode(): v.encode() if isinstance(v, str) else v for k, v in v3(good).items()},
        "v3 unknown id": v3(good, "m2"),
        "v3 no outer id": {"enc": "aes", "load": sealed, "version": 3},
        "v3 bad outer id": v3(good, "../m1"),
        "v3 empty outer id": v3(good, ""),
        "v3 outer id int": v3(good, 5),
        "v3 load map": {"enc": "aes", "load": {}, "version": 3, "id": "m1"},
        "v3 load nil": {"enc": "aes", "load": None, "version": 3, "id": "m1"},
        "v3 load short": {"enc": "aes", "load": b"\xff" * 31, "version": 3, "id": "m1"},
        "v3 garbage": {"enc": "aes", "load": b"\xff" * 96, "version": 3, "id": "m1"},
        "v3 bit flipped": {"enc": "aes", "load": sealed[:40] + bytes([sealed[40] ^ 1]) + sealed[41:], "version": 3, "id": "m1"},
        "v3 sealed with aes": v3(good, key=aes),
        "v3 not a map": v3([1, 2]),
        "v3 nil inside": v3(None),
        "v3 id mismatch": v3(without("", id="m2")),
        "v3 no inner id": v3(without("id")),
        "v3 inner id int": v3(without("", id=5)),
        "v3 inner id nil": v3(without("", id=None)),
        "v3 inner id list": v3(without("", id=["m1"])),
        "v3 inner id null byte": v3(without("", id="m1\0")),
        "v3 no tok": v3(without("tok")),
        "v3 tok nil": v3(without("", tok=None)),
        "v3 tok short": v3(without("", tok=tok[:255])),
        "v3 tok empty": v3(without("", tok=b"")),
        "v3 tok zero": v3(without("", tok=b"\0" * 256)),
        "v3 tok of another key": v3(without("", tok=other)),
        "v3 tok of another text": v3(without("", tok=wrong)),
        "v2": v2(without("tok")),
        "v2 with tok": v2(good),
        "v2 tok without id": v2(without("id")),
        "v2 bad tok": v2(without("", tok=other)),
        "v2 garbage": {"enc": "aes", "load": b"\xff" * 96, "version": 2},
        "v2 sealed with session": v2(good, key=session),
        "v1": v2(good, version=1),
        "v0": v2(good, version=0),
    }
    for name, payload in cases.items():
        request = salt.payload.dumps(payload)
        reply = master.answer(request)
        yield {"name": name, "request": request.hex(), "reply": reply and reply.hex()}
    # What the handlers answer, sealed.
    for version, make in ((3, v3), (2, v2), (0, v2)):
        for value in (None, True, {}, {"a": [1, "x"]}, "text", b"\xff\xfe"):
            master.value = value
            request = salt.payload.dumps(make(good, version=version))
            yield {
                "name": f"v{version} answered {value!r}", "request": request.hex(), "reply": master.answer(request).hex(),
                "value": salt.payload.dumps(value).hex(),
            }


def make_pillar(root, keys):
    """Private replies."""
    master = Master(root / "master", keys["master"])
    master.accept("m1", public(keys["minion"]))
    master.function = "send_private"
    for value in ({"hello": "world"}, {}, False):
        for version in (0, 2, 3):
            for enc, sig in ALGORITHMS:
                minion = Minion(pathlib.Path(tempfile.mkdtemp(dir=root)), keys["minion"], enc=enc, sig=sig)
                minion.auth._session_crypticle = salt.crypt.Crypticle({}, SESSION if version > 2 else AES)
                request, _ = minion.send({"cmd": "_pillar", "id": "m1", "ver": "2"})
                request = salt.payload.loads(request)
                request["version"] = version
                request = salt.payload.dumps(request)
                master.value = value
                yield {
                    "version": version, "enc": enc, "sig": sig, "value": salt.payload.dumps(value or {}).hex(),
                    "request": request.hex(), "reply": master.answer(request).hex(),
                }
    aes = salt.crypt.Crypticle({}, AES)
    request = salt.payload.dumps({"enc": "aes", "load": aes.dumps({"cmd": "_pillar", "id": "m1"}), "version": 2})
    master.value = {}
    yield {"version": 2, "no nonce": True, "enc": "", "sig": "", "request": request.hex(), "reply": master.answer(request).hex()}


def make_publications(root, keys):
    """Publications with one AES key, in order."""
    for algorithm in [a for _, a in ALGORITHMS] + [None]:
        master = Master(root / "master", keys["master"], sign_pub_messages=bool(algorithm), publish_signing_algorithm=algorithm)
        channel = object.__new__(salt.channel.server.PubServerChannel)
        channel.opts, channel.master_key = master.opts, master.channel.master_key
        channel.transport = types.SimpleNamespace(topic_support=lambda: False)
        load = {"fun": "test.ping", "arg": [], "tgt": "*", "jid": "20260101000000000000", "ret": "", "tgt_type": "glob", "user": "root"}
        payload = channel.wrap_payload(dict(load))["payload"]
        yield {"algorithm": algorithm or "", "load": salt.payload.dumps(load).hex(), "payload": payload.hex()}


def make_minion_requests(root, keys):
    """Requests as a real minion sends them."""
    for signed in (False, True):
        for enc, sig in ALGORITHMS:
            minion = Minion(pathlib.Path(tempfile.mkdtemp(dir=root)), keys["minion"], enc=enc, sig=sig, minion_sign_messages=signed)
            load = {"cmd": "_return", "id": "m1", "return": {"b": "\u00e9" * 40, "a": [b"\xff", None, 1.5]}, "jid": "20260101000000000000"}
            with mock.patch("time.time", return_value=1795253700.25):
                request, _ = minion.send(dict(load))
            yield {"signed": signed, "enc": enc, "sig": sig, "load": salt.payload.dumps(load).hex(), "request": request.hex()}


def make():
    root = pathlib.Path(tempfile.mkdtemp())
    keys = make_keys()
    master = library_key(root, keys["master"])
    pub = public(keys["master"])
    write(root / "master.pub", pub)
    library_pub = salt.crypt.PublicKey.from_file(str(root / "master.pub"))
    crypticle = salt.crypt.Crypticle({}, AES)
    clean = ["", "  \n", "a", "a\n", "a\r\nb\r\n", "\n a\rb\vc\fd\x1ce\u2028f\u0085g \n", "a\n\nb", pub, pub.replace("\n", "\r\n")]
    out = {
        "salt": salt.version.__version__,
        "keys": keys,
        "master pub": pub,
        "aes": AES,
        "session": SESSION,
        "nonce": NONCE,
        "token": TOKEN.hex(),
        "pack": {name: short(salt.payload.dumps(value)) for name, value in values()},
        "pack new": {name: short(salt.payload.dumps(value, use_bin_type=True)) for name, value in values()},
        "sealed": [
            {"packed": salt.payload.dumps(v).hex(), "nonce": n, "sealed": crypticle.dumps(v, n or None).hex()}
            for n in ("", NONCE) for v in (None, True, {}, "text", {"a": list(range(100))})
        ],
        "x931": [
            {"message": m.hex(), "signature": master.encrypt(m).hex()}
            for m in [b"", b"salt", b"x" * 253] + [b"salt%d" % i for i in range(12)]
        ],
        "signed": [{"algorithm": a, "message": m.hex(), "signature": master.sign(m, a).hex()} for _, a in ALGORITHMS for m in (b"", b"message" * 100)],
        "encrypted": [{"algorithm": a, "message": m.hex(), "ciphertext": library_pub.encrypt(m, a).hex()} for a, _ in ALGORITHMS for m in (b"x", AES.encode())],
        "clean": [[text, salt.crypt.clean_key(text)] for text in clean],
        "fingerprints": {h: salt.utils.crypt.pem_finger(path=str(root / "master.pub"), sum_type=h) for h in ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")},
        "signin": list(make_signin(pathlib.Path(tempfile.mkdtemp(dir=root)), keys)),
        "requests": list(make_refusals(pathlib.Path(tempfile.mkdtemp(dir=root)), keys)),
        "pillar": list(make_pillar(pathlib.Path(tempfile.mkdtemp(dir=root)), keys)),
        "publications": list(make_publications(pathlib.Path(tempfile.mkdtemp(dir=root)), keys)),
        "minion requests": list(make_minion_requests(pathlib.Path(tempfile.mkdtemp(dir=root)), keys)),
    }
    json.dump(out, sys.stdout, indent=1)
    sys.stdout.write("\n")


def read_question(root, q):
    """What the library makes of one message of the Go side: the packed value, or a text that begins with "error"."""
    raw = bytes.fromhex(q["message"])
    if q["kind"] == "unpack":
        return salt.payload.dumps(salt.payload.loads(raw))
    opts = {"sign_pub_messages": True} if q["kind"] == "publication" else {}
    minion = Minion(root, q["key"], q.get("id", "m1"), q.get("master") or None, q.get("enc"), q.get("sig"), **opts)
    if q["kind"] == "signin":
        minion.auth.token = bytes.fromhex(q["token"])
        sent = {"nonce": q["nonce"]}
        if q.get("master"):
            sent["token"] = True
        got = minion.auth.handle_signin_response(sent, salt.payload.loads(raw))
        if isinstance(got, dict):
            got.pop("master_uri")
    elif q["kind"] == "sealed":
        _, got = minion.send({"cmd": "x"}, raw)
    elif q["kind"] == "pillar":
        _, got = minion.send({"cmd": "_pillar"}, raw, pillar=True)
    elif q["kind"] == "publication":
        got = minion.receive(raw)["load"]
    elif q["kind"] == "request":
        master = Master(root / "m", q["master key"])
        master.accept("m1", public(q["key"]))
        master.value = True
        got = salt.payload.loads(master.answer(raw))
        if isinstance(got, bytes):
            key = SESSION if q["version"] > 2 else AES
            got = salt.crypt.Crypticle({}, key).loads(got, nonce=NONCE if q["version"] > 1 else None)
    if isinstance(got, Exception):
        raise got
    return salt.payload.dumps(got)


def read():
    answers = []
    for q in json.load(sys.stdin):
        root = pathlib.Path(tempfile.mkdtemp())
        try:
            answers.append(read_question(root, q).hex())
        except Exception as exc:  # pylint: disable=broad-except
            answers.append(f"error {type(exc).__name__}: {exc}")
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = scratch
        {"make": make, "read": read}[sys.argv[1]]()
