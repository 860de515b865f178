"""What tests of targets give to Salt's matchers."""


class Memo:
    """A cache that reads each value from disk once."""

    def __init__(self, cache):
        self._cache, self._had = cache, {}

    def __getattr__(self, name):
        return getattr(self._cache, name)

    def fetch(self, *key):
        if key not in self._had:
            self._had[key] = self._cache.fetch(*key)
        return self._had[key]

    def list(self, *key):
        key = ("list",) + key
        if key not in self._had:
            self._had[key] = self._cache.list(*key[1:])
        return list(self._had[key])
