"""A grain of the site that a state changes."""

import os


def found():
    if not os.path.exists("ROOT/made/grain"):
        return {"found": "nothing"}
    with open("ROOT/made/grain") as file:
        return {"found": file.read().strip()}
