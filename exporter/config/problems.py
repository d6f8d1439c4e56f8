"""What is wrong with a file, in words that are safe to print."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_LONGEST = 60
_LOOKS_LIKE_A_KEY = re.compile("[A-Za-z0-9]{6,}[.][A-Za-z0-9]{20,}")


class Problem(NamedTuple):
    """One mistake: `path` is where it stands, such as `workspaces[0].models[1].window`."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ConfigError(Exception):
    """A file that cannot be used; as text, one line per problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def shown(value: object) -> str:
    """A bad value, short and on one line; what might be an API key stays hidden."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 128:  # Python refuses to print the longest ones
        return "a huge number"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else "the value"


def without_keys(text: str) -> str:
    """The text without what might be an API key, put where it does not belong."""
    return _LOOKS_LIKE_A_KEY.sub("<hidden>", text)


def _quoted(text: str) -> str:
    hidden = without_keys(text)
    return ascii(hidden if len(hidden) <= _LONGEST else hidden[:_LONGEST] + "...")
