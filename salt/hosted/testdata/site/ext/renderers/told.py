"""A site's renderer: it tells what Salt gives it."""


def render(data, saltenv="base", sls="", **kwargs):
    return {
        "told": {
            "keywords": sorted(kwargs),
            "plain": {key: kwargs[key] for key in sorted(kwargs) if key not in ("renderers", "tmplpath")},
            "renderers": "yaml" in kwargs["renderers"],
            "place": [saltenv, sls, kwargs["tmplpath"].rpartition("/")[2]],
        }
    }
