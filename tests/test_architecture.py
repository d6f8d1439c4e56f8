"""The rooms of the code: who may import whom, which library stands behind which door, and no state."""

import ast
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

ORDER = [
    "exporter",
    "exporter.model",
    "exporter.apikey",
    "exporter.logs",
    "exporter.sharding",
    "exporter.exposition",
    "exporter.store",
    "exporter.baseten",
    "exporter.config",
    "exporter.telemetry",
    "exporter.polling",
    "exporter.web",
    "exporter.budget",
    "exporter.diagnosis",
    "exporter.overview",
    "exporter.app",
    "exporter.serving",
    "exporter.check",
    "exporter.demo",
    "exporter.cli",
    "exporter.__main__",
]
"""Lowest first: a room imports from itself and from those before it."""

STRANGERS = [
    ("exporter.web", "exporter.polling"),  # the two sides meet only at the store
    ("exporter.web", "exporter.baseten"),
    ("exporter.polling", "exporter.config"),
    ("exporter.baseten", "exporter.exposition"),
    ("exporter.baseten", "exporter.store"),
    ("exporter.config", "exporter.baseten"),
]
"""What a room does without, though it stands higher."""

DOORS = {
    "apscheduler": ["exporter.polling.scheduler"],
    "bcrypt": ["exporter.web.auth", "exporter.web.config"],
    "h11": ["exporter.web.server"],
    "cryptography": ["exporter.web.tls"],
    "httpcore": ["exporter.baseten.deadline"],
    "httpx": ["exporter.baseten.client", "exporter.baseten.connections", "exporter.baseten.deadline"],
    "isal": ["exporter.web.pages"],
    "msgspec": ["exporter.baseten", "exporter.config", "exporter.web.config", "exporter.web.status"],
    "prometheus_client": ["exporter.exposition", "exporter.telemetry", "exporter.web.pages"],
    "starlette": ["exporter.web"],
    "uvicorn": ["exporter.web.server"],
    "yaml": ["exporter.config.document"],
}
"""Third-party libraries, and the rooms that may know them."""

MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_TYPES = {"list", "dict", "set", "bytearray", "defaultdict", "Counter", "deque", "OrderedDict"}
MUTATORS = {
    *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault"),
    *("appendleft", "popleft", "sort", "reverse", "update"),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): ast.parse(path.read_text("utf-8")) for path in ROOT.glob("exporter/**/*.py")}


def imports(module: str) -> Iterator[str]:
    """The modules that a module imports, also those it imports in functions."""
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno} imports relatively"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module or ""


def inside(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def room_of(module: str) -> str:
    """The room in ORDER that a module belongs to; the simulator has none."""
    return max((room for room in ORDER if inside(module, room)), key=len)


PRODUCT = sorted(module for module in MODULES if not inside(module, "exporter.simulator"))
SIMULATOR = sorted(MODULES.keys() - set(PRODUCT))


def test_every_module_has_a_place_in_the_order() -> None:
    """Only the package itself may stand in its first room, so that a new module must be placed."""
    assert [module for module in PRODUCT if room_of(module) == "exporter"] == ["exporter"]
    assert {room_of(module) for module in PRODUCT} == set(ORDER)


@pytest.mark.parametrize("module", PRODUCT)
def test_a_module_imports_only_from_its_own_room_and_lower_ones(module: str) -> None:
    rank = ORDER.index(room_of(module))
    own = [name for name in imports(module) if inside(name, "exporter")]
    uphill = [name for name in own if name in SIMULATOR or ORDER.index(room_of(name)) > rank]
    assert [name for name in uphill if (module, name) != ("exporter.demo", "exporter.simulator")] == []


@pytest.mark.parametrize(("room", "stranger"), STRANGERS)
def test_a_room_does_without_its_strangers(room: str, stranger: str) -> None:
    known = [(module, name) for module in PRODUCT if inside(module, room) for name in imports(module)]
    allowed = ("exporter.web.routes", "exporter.config")
    assert [pair for pair in known if inside(pair[1], stranger) and pair != allowed] == []


@pytest.mark.parametrize("module", SIMULATOR)
def test_the_simulator_knows_nothing_of_the_exporter(module: str) -> None:
    known = [name for name in imports(module) if inside(name, "exporter")]
    assert [name for name in known if not inside(name, "exporter.simulator")] == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_library_is_known_only_behind_its_door(module: str) -> None:
    libraries = {name.partition(".")[0] for name in imports(module)} - sys.stdlib_module_names - {"exporter"}
    behind = {library: [door for door in DOORS[library] if inside(module, door)] for library in libraries}
    assert [library for library, doors in behind.items() if not doors] == []


def test_no_module_imports_itself_through_others() -> None:
    graph = {module: {name for name in imports(module) if name in MODULES} for module in MODULES}
    TopologicalSorter(graph).prepare()  # CycleError names the cycle


def assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from ((ast.unparse(target), node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield ast.unparse(node.target), node.value


def is_mutable(value: ast.expr) -> bool:
    called = ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
    return isinstance(value, MUTABLE) or called in MUTABLE_TYPES


def changed(tree: ast.Module) -> Iterator[str]:
    """The names of what a module changes in place or declares global."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield ast.unparse(node.value)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS
        ):
            yield ast.unparse(node.func.value)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_keeps_no_state(module: str) -> None:
    """Lists, dicts and sets of a module are constants by name, and never changed."""
    tree = MODULES[module]
    mutable = {name for name, value in assignments(tree) if is_mutable(value)}
    assert [name for name in mutable if not (name.isupper() or name.startswith("__"))] == []
    assert {name for name, _ in assignments(tree)} & set(changed(tree)) == set()
