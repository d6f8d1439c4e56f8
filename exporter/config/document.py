"""A YAML file as plain data; mistakes are given with line and column, never with the content."""

import re
from pathlib import Path
from typing import Any

import yaml

from exporter.config.problems import ConfigError, Problem, shown

_SURROGATE = re.compile("[\ud800-\udfff]")
_QUOTED = re.compile(r"""(['"])(?!<)\S{4,}\1""")


class _RefusedError(yaml.MarkedYAMLError):
    """One of our own rules is broken; unlike PyYAML's, the message is safe to print as it is."""


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses what it would otherwise swallow, and names the place of all it refuses."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        """Look for duplicate keys here, before `<<` brings in keys that may be overridden."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise _refused(f"the key {shown(key.value)} stands twice in one mapping", key)
            seen.add((key.tag, key.value))
        return node

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        if _SURROGATE.search(node.value):
            raise _refused("half of a surrogate pair is no character", node)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:  # noqa: FBT001, FBT002 - PyYAML's
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError):
            raise _refused("not a value of its type; put it in quotes", node) from None


def _refused(message: str, node: yaml.Node) -> _RefusedError:
    return _RefusedError(problem=message, problem_mark=node.start_mark)


def read(path: Path) -> dict[Any, Any]:
    """The mapping a file holds; ConfigError when it holds anything else."""
    data = _parse(_text(path), path)
    if not isinstance(data, dict):
        found = "the file is empty" if data is None else f"{shown(data)} stands at the top"
        raise _error(path, f"{found}, where a mapping (key: value) belongs")
    return data


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise _error(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _error(path, f"is not UTF-8 text (byte {error.start})") from None


def _parse(text: str, path: Path) -> object:
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        raise _error(path, _sentence(error)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _error(path, f"line {line}: not YAML: it holds a control character") from None
    except RecursionError:
        raise _error(path, "not YAML: nested too deeply") from None


def _sentence(error: yaml.MarkedYAMLError) -> str:
    """Where and why; quoted names are cut out, since a stray `*` or `!` may turn a key into one."""
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    if isinstance(error, _RefusedError):
        return f"{place}{error.problem}"
    reason = ", ".join(filter(None, (error.context, error.problem)))
    return f"{place}not YAML: {_QUOTED.sub('...', reason)}"


def _error(path: Path, message: str) -> ConfigError:
    return ConfigError([Problem(str(path), message)])
