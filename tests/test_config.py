"""Loading a configuration: one file per mistake, with what is said about it in its first lines."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.config import Config, ConfigError, Problem, load, schema
from exporter.model import (
    Discovery,
    Followed,
    LoopsOptions,
    LoopsSelector,
    ModelOptions,
    ModelSelector,
)

FOLDER = Path(__file__).parent / "config"
EXAMPLE = Path(__file__).parent.parent / "config.example.yaml"
ENVIRON = {"BASETEN_API_KEY": "key-from-env", "EMPTY_KEY": " \n", "BROKEN_KEY": "s3cr3t value"}

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return write


def good(name: str) -> Config:
    return load(FOLDER / f"{name}.ok.yml", ENVIRON)


def complaints(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, ENVIRON)
    return str(caught.value).splitlines()


def polls_something(config: Config) -> bool:
    return any(each.targets or each.followed or each.discovery for each in config.workspaces)


def discovered(name: str) -> Discovery:
    (workspace,) = good(name).workspaces
    assert workspace.discovery
    return workspace.discovery


def cases(kind: str) -> list[Any]:
    return [pytest.param(path, id=path.name.split(".")[0]) for path in sorted(FOLDER.glob(f"*.{kind}.yml"))]


@pytest.mark.parametrize("path", cases("ok"))
def test_a_good_file_loads(path: Path) -> None:
    assert polls_something(load(path, ENVIRON))


@pytest.mark.parametrize("path", cases("bad"))
def test_a_bad_file_says_what_is_wrong_and_no_more(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace")
    expected = [
        line.replace("{folder}", str(FOLDER)) for line in re.findall(r"^# error: (.*)$", text, re.MULTILINE)
    ]
    found = complaints(path)
    assert found == expected
    assert "s3cr3t" not in "".join(found)


def test_defaults_are_filled_in() -> None:
    config = good("minimal")
    (workspace,) = config.workspaces
    assert (config.poll.interval, config.poll.timeout, config.poll.concurrency) == (60, 10, 32)
    assert (config.poll.stale_after, config.poll.max_sample_age) == (300, 600)
    assert (workspace.api_url, workspace.requests_per_second) == ("https://api.baseten.co", 20)
    assert workspace.ca is None
    assert workspace.key.read() == "key-from-env"
    assert config.targets[0].options == ModelOptions()
    assert (workspace.followed, workspace.discovery) == ((), None)
    assert workspace.metadata_labels == ("model_name", "environment", "base_model", "loops_deployment_id")


def test_the_defaults_of_the_options_are_those_of_the_model() -> None:
    (target,) = good("empty-sections").targets
    assert target.options == LoopsOptions()


def test_files_are_looked_up_beside_the_config() -> None:
    (workspace,) = good("key-file").workspaces
    assert workspace.key.read() == "key-from-file"
    assert workspace.ca == (FOLDER / "ca.pem").read_text().strip()


def test_of_a_ca_file_only_the_certificates_count(write: Write) -> None:
    certificate = (FOLDER / "ca.pem").read_text()
    path = write((FOLDER / "minimal.ok.yml").read_text() + "    ca_file: bundle.pem\n")
    (path.parent / "bundle.pem").write_bytes(
        f"Társaság\n{certificate}\n# another\n{certificate}".encode("latin1")
    )
    assert load(path, ENVIRON).workspaces[0].ca == "\n".join([certificate.strip()] * 2)


@pytest.mark.parametrize(
    "content",
    ["", "hello", "-----BEGIN CERTIFICATE-----\nMIIB\n# Társaság\n{certificate}"],
    ids=["empty", "no PEM", "a certificate without its end"],
)
def test_a_ca_file_without_good_certificates_is_refused(write: Write, content: str) -> None:
    path = write((FOLDER / "minimal.ok.yml").read_text() + "    ca_file: bundle.pem\n")
    certificate = (FOLDER / "ca.pem").read_text()
    (path.parent / "bundle.pem").write_bytes(content.format(certificate=certificate).encode("latin1"))
    with pytest.raises(ConfigError, match="holds no PEM certificate"):
        load(path, ENVIRON)


def test_a_trailing_slash_of_the_url_goes(write: Write) -> None:
    path = write((FOLDER / "minimal.ok.yml").read_text() + "    api_url: http://[::1]:8080/proxy//\n")
    assert load(path, ENVIRON).workspaces[0].api_url == "http://[::1]:8080/proxy"


def test_everything_written_arrives(write: Write) -> None:
    config = load(
        write(
            """
            poll: {interval: 2m, timeout: 1s500ms, concurrency: 4, stale_after: 1h, max_sample_age: 1d}
            workspaces:
              - name: Team Ü
                api_key_env: BASETEN_API_KEY
                requests_per_second: 2.5
                models:
                  - {model_id: m, deployment_id: d, mode: series, window: 1h, delay: 5m, metrics: [b, a],
                     labels: {team: "7", shard: a b}}
                loops:
                  - {deployment_id: l, window: 10m, step: 1m, delay: 1m}
            """
        ),
        ENVIRON,
    )
    model, loops = config.targets
    assert config.poll.timeout == 1.5
    assert model.options == ModelOptions(mode="series", window=3600, delay=300, metrics=("b", "a"))
    assert model.extra_labels == (("team", "7"), ("shard", "a b"))
    assert model.key == ("Team Ü", "model", "m", "d")
    assert loops.options == LoopsOptions(window=600, step=60, delay=60)
    assert loops.key == ("Team Ü", "loops", "", "l")


def test_an_environment_is_followed_with_the_options_of_its_entry() -> None:
    (workspace,) = good("model-environment").workspaces
    assert workspace.targets == ()
    assert workspace.followed == (
        Followed("m1", "production", ModelOptions("series", window=3600), (("team", "search"),)),
        Followed("m1", "staging", ModelOptions()),
        Followed("m2", "production", ModelOptions()),
    )


def test_an_empty_kind_is_discovered_whole() -> None:
    statuses = ("ACTIVE", "UNHEALTHY", "UPDATING", "WAKING_UP", "LOADING_MODEL", "DEPLOYING")
    everything = ModelSelector((), (), (), statuses)
    assert discovered("discovery-only") == Discovery(
        300, everything, LoopsSelector("mine", ()), environments=True, prices=True
    )
    assert discovered("discovery-lists-empty").models == everything


def test_a_kind_that_is_not_written_is_not_discovered() -> None:
    assert discovered("discovery-loops").models is None
    assert discovered("discovery-loops").loops == LoopsSelector("org", ())
    assert discovered("discovery-lists-empty").loops is None


def test_all_that_discovery_is_told_arrives() -> None:
    include, exclude = (re.compile("llama-.*"), re.compile("(?i)qwen")), (re.compile(".*-old"),)
    assert discovered("discovery-everything") == Discovery(
        90,
        ModelSelector(include, exclude, ("production",), ("ACTIVE",)),
        LoopsSelector("org", (re.compile("meta/.*"),)),
        environments=False,
        prices=False,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [("discovery-everything", ("base_model", "environment")), ("metadata-labels-empty", ())],
)
def test_metadata_labels_are_those_written(name: str, expected: tuple[str, ...]) -> None:
    (workspace,) = good(name).workspaces
    assert workspace.metadata_labels == expected


def test_a_pattern_is_no_crash(write: Write) -> None:
    text = (FOLDER / "discovery-only.ok.yml").read_text().replace("{}", f"{{include: ['{'(' * 9_000}']}}", 1)
    (complaint,) = complaints(write(text))
    assert "is not a regular expression: " in complaint


def test_two_loads_of_one_file_are_equal() -> None:
    assert good("limits") == good("limits")
    assert good("discovery-everything") == good("discovery-everything")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    assert complaints(path) == [f"{path}: cannot be read: No such file or directory"]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert complaints(tmp_path) == [f"{tmp_path}: cannot be read: Is a directory"]


def test_depth_is_no_crash(write: Write) -> None:
    path = write("[" * 1_000)
    assert complaints(path) == [f"{path}: not YAML: nested too deeply"]


def test_problems_can_be_read_one_by_one(write: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write("a: 1\nb: 2\n"), ENVIRON)
    assert caught.value.problems[:2] == (
        Problem("a", "unknown key; the keys are poll, workspaces"),
        Problem("b", "unknown key; the keys are poll, workspaces"),
    )


@pytest.mark.parametrize("field", ["name", "model_id", "api_url", "mode", "api_key_file", "environment"])
def test_a_key_in_the_wrong_place_is_not_shown(field: str, write: Write) -> None:
    """Whatever stands where, what looks like an API key is hidden, also where it stands twice."""
    key = "AbCdEf12.abcdefghijklmnopqrstuvwxyz012345"
    text = f"workspaces: [{{{field}: {key} x}}, {{models: [{{{field}: {key}/x}}]}}]"
    assert "abcdefghij" not in "\n".join(complaints(write(text)))


def parts() -> st.SearchStrategy[list[tuple[int, str]]]:
    units = st.lists(st.sampled_from(list(schema._UNITS)), min_size=1, unique=True)
    ordered = units.map(lambda some: sorted(some, key=list(schema._UNITS).index))
    return ordered.flatmap(
        lambda some: st.tuples(*(st.tuples(st.integers(0, 10**6), st.just(u)) for u in some)).map(list)
    )


@given(parts())
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in parts)
    assert schema.seconds(text) == sum(count * schema._UNITS[unit] for count, unit in parts) / 1000


@given(st.text("0123456789ywdhms .-", max_size=8))
def test_a_duration_means_what_it_says_or_is_refused(text: str) -> None:
    parts = re.findall(r"([0-9]+)(ms|[ywdhms])", text)
    try:
        length = schema.seconds(text)
    except ValueError:
        units = [unit for _, unit in parts]
        in_order = units == [unit for unit in schema._UNITS if unit in units]
        assert not in_order or "".join(map("".join, parts)) != text or not parts
    else:
        assert math.isclose(length, sum(int(count) * schema._UNITS[unit] for count, unit in parts) / 1000)


ODD = ("", " ", "60s", "8d", "1:30", "api_key", "<<", "a b")
WORDS = sorted({*re.findall(r"\w+", EXAMPLE.read_text()), *ODD})
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(WORDS)
)
KEYS = st.sampled_from(
    [name for shape in vars(schema).values() for name in getattr(shape, "__struct_fields__", ())]
)
ANYTHING = st.recursive(
    SCALARS | st.dates() | st.binary(max_size=3),
    lambda deeper: st.lists(deeper, max_size=3) | st.dictionaries(KEYS | SCALARS, deeper, max_size=5),
    max_leaves=20,
)


def loads_or_complains(data: object, path: Path) -> None:
    path.write_text(yaml.safe_dump(data), "utf-8")
    try:
        config = load(path, ENVIRON)
    except ConfigError as error:
        problems, text = error.problems, str(error)
    else:
        assert polls_something(config)
        return
    assert problems
    assert len(text.splitlines()) == len(problems)


@settings(deadline=None)  # files are as slow as they are
@given(st.dictionaries(KEYS, ANYTHING) | ANYTHING)
def test_any_data_loads_or_is_refused(tmp_path_factory: pytest.TempPathFactory, data: object) -> None:
    loads_or_complains(data, tmp_path_factory.getbasetemp() / "any.yaml")


@settings(deadline=None)  # files are as slow as they are
@given(st.dictionaries(KEYS, ANYTHING), st.dictionaries(KEYS, ANYTHING), st.dictionaries(KEYS, ANYTHING))
def test_any_section_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, poll: Any, workspace: Any, entry: Any
) -> None:
    ids = {"deployment_id": "d", **entry}
    lists = {"models": [{"model_id": "m", **ids}], "loops": [ids]}
    found = {"name": "n", "api_key_env": "BASETEN_API_KEY", **workspace, **lists}
    loads_or_complains({"poll": poll, "workspaces": [found]}, tmp_path_factory.getbasetemp() / "section.yaml")


PATTERNS = st.lists(st.text(max_size=9) | st.text(r"[]()\{}^-:?*+|a1,<=!P\n", max_size=9), max_size=3)


@settings(deadline=None)  # files are as slow as they are
@given(st.dictionaries(KEYS, ANYTHING), st.dictionaries(KEYS, ANYTHING), PATTERNS)
def test_any_discovery_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, discovery: Any, entry: Any, patterns: Any
) -> None:
    found = {
        "name": "n",
        "api_key_env": "BASETEN_API_KEY",
        "models": [{"model_id": "m", "environment": "e", **entry}],
        "discovery": {**discovery, "models": {"include": patterns}, "loops": {"include": patterns}},
    }
    loads_or_complains({"workspaces": [found]}, tmp_path_factory.getbasetemp() / "discovery.yaml")


@settings(deadline=None)  # files are as slow as they are
@given(st.text(max_size=40))
def test_any_text_loads_or_is_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "text.yaml"
    path.write_text(text, "utf-8")
    assert complaints(path)


SHAPES: tuple[type[msgspec.Struct], ...] = (
    schema.Config,
    schema.Poll,
    schema.Workspace,
    schema.Model,
    schema.Loops,
    schema.Discovery,
    schema.DiscoverModels,
    schema.DiscoverLoops,
)


def test_every_section_is_looked_at() -> None:
    sections = {shape for shape in vars(schema).values() if hasattr(shape, "__struct_fields__")}
    assert set(SHAPES) == sections - {msgspec.Struct, schema.Entry}


def test_the_example_loads_and_holds_the_defaults() -> None:
    example = load(EXAMPLE, {"BASETEN_API_KEY": "x"})
    minimal = good("minimal")
    assert example.poll == minimal.poll
    (workspace,), (bare,) = example.workspaces, minimal.workspaces
    same = ("api_url", "requests_per_second", "ca", "key", "metadata_labels")
    assert [getattr(workspace, name) for name in same] == [getattr(bare, name) for name in same]
    assert [target.options for target in workspace.targets] == [ModelOptions(), LoopsOptions()]
    assert all(target.extra_labels == () for target in workspace.targets)
    assert workspace.followed == (Followed("abc123", "production", ModelOptions()),)
    assert workspace.discovery == discovered("discovery-only")


def example_section(shape: type[msgspec.Struct]) -> Any:
    """A section of the example, with the keys that exclude others or need a file taken out of comments."""
    example = yaml.safe_load(re.sub("# (api_key_file|ca_file):", r"\1:", EXAMPLE.read_text()))
    (workspace,) = example["workspaces"]
    (model, following), (loops,) = workspace["models"], workspace["loops"]
    found = workspace["discovery"]
    sections = (example, example["poll"], workspace, {**model, **following}, loops)
    return (*sections, found, found["models"], found["loops"])[SHAPES.index(shape)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_the_example_shows_every_key(shape: type[msgspec.Struct]) -> None:
    assert set(example_section(shape)) == set(shape.__struct_fields__)


def test_the_example_gives_every_value_a_reason() -> None:
    values = re.findall(r"^ *(?:[-#] )?\w+: .*", EXAMPLE.read_text(), re.MULTILINE)
    assert values
    assert [line for line in values if not re.search(r"\S +# \S", line)] == []


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_key_is_described(shape: type[msgspec.Struct]) -> None:
    for info in msgspec.structs.fields(shape):
        notes = [note for note in info.type.__metadata__ if note.description]
        assert notes, info.name
        assert notes[-1].description.endswith("."), info.name
