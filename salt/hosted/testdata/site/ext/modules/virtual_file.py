__virtualname__ = "named"


def __virtual__():
    if __grains__["kernel"] == "Linux":
        return __virtualname__
    return False, "needs Linux"


def kernel():
    return __grains__["kernel"]
