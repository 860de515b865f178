import io


def render(data, saltenv="base", sls="", argline="", **kwargs):
    if hasattr(data, "read"):
        data = data.read()
    return io.StringIO(data.replace("@NAME@", __grains__["id"] + " " + sls + " " + argline))
