"""Write the values table of the chart's README from the comments in its values.yaml: `make docs`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).parent.parent / "helm" / "baseten-exporter"
PAGE = CHART / "README.md"
_BEGIN, _END = "<!-- values -->\n", "<!-- end of values -->\n"


class Row(NamedTuple):
    path: str
    default: Any
    text: str


class UndocumentedError(Exception):
    """A value without a comment; the message is its path."""


def page() -> str:
    """The README as it is, with the table as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{table()}{_END}{after}"


def table() -> str:
    lines = ["| value | default | what it is |", "|---|---|---|"]
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    lines += [f"| `{row.path}` | `{json.dumps(row.default)}` | {row.text} |" for row in rows(text)]
    return "\n".join([*lines, ""])


def rows(text: str) -> Iterator[Row]:
    """Every value with a comment above it; a map without one is the sum of its values."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    yield from _rows(root, text.splitlines(), "")


def _rows(node: yaml.MappingNode, lines: list[str], prefix: str) -> Iterator[Row]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        comment = _comment(lines, key.start_mark.line)
        if comment:
            yield Row(path, yaml.safe_load(yaml.serialize(value)), comment)
        elif isinstance(value, yaml.MappingNode) and value.value:
            yield from _rows(value, lines, f"{path}.")
        else:
            raise UndocumentedError(path)


def _comment(lines: list[str], line: int) -> str:
    """The comment that ends right above a line, as one."""
    words: list[str] = []
    while line and (match := re.match(r" *# (.*)", lines[line - 1])):
        words.insert(0, match[1])
        line -= 1
    return " ".join(words).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
