"""Filters that depend on time, chance or the master's users, not on arguments alone."""

import base64
import datetime
import hashlib
import os
import pwd
import random


def strftime(date=None, format="%Y-%m-%d"):
    return _date(date).strftime(format)


_DATES = ("%Y/%m/%d", "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%m/%d/%Y", "%d-%m-%Y", "%d %B %Y", "%B %d, %Y", "%d %b %Y", "%b %d, %Y")


def _date(date):
    now = datetime.datetime.now()
    if date is None:
        return now
    if isinstance(date, datetime.datetime):
        return date
    if isinstance(date, str):
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        day = datetime.timedelta(days=1)
        named = {"now": now, "today": midnight, "tomorrow": midnight + day, "yesterday": midnight - day}
        if date.lower() in named:
            return named[date.lower()]
        try:
            return datetime.datetime.fromisoformat(date)
        except ValueError:
            pass
        for form in _DATES:
            try:
                return datetime.datetime.strptime(date, form)
            except ValueError:
                pass
    try:
        if isinstance(date, str):
            date = int(date) if date.isdigit() else float(date)
        return datetime.datetime.fromtimestamp(date)
    except Exception:
        raise ValueError(f"Unable to parse {date}") from None


def random_str(size=32):
    return base64.b64encode(os.urandom(size)).decode("ascii")[:size]


def random_hash(size=9999999999, hash_type=None):
    number = random.SystemRandom().randint(0, size)
    return hashlib.new(hash_type or "md5", str(number).encode("ascii")).hexdigest()


def random_sample(value, size, seed=None):
    source = random if seed is None else random.Random(hash(seed))
    return source.sample(value, size)


def random_shuffle(value, seed=None):
    return random_sample(value, len(value), seed)


def gen_mac(prefix="AC:DE:48"):
    return ":".join([prefix, *(f"{random.randint(0, 255):02X}" for _ in range(3))])


def uid(user=None):
    if user is None:
        return os.geteuid()
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


FILTERS = {
    "date_format": strftime,
    "gen_mac": gen_mac,
    "get_uid": uid,
    "rand_str": random_hash,
    "random_hash": random_hash,
    "random_sample": random_sample,
    "random_shuffle": random_shuffle,
    "random_str": random_str,
    "strftime": strftime,
}
