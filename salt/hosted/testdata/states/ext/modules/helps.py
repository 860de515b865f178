def test_mode():
    return bool(__opts__["test"])
