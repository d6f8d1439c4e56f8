"""The chart, on a real Helm engine: what it renders, what it refuses, and whether others accept it.

`UPDATE_GOLDEN=1 pytest tests/test_chart.py` writes the expected manifests anew.
"""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import trustme
import yaml

from exporter import __version__
from exporter.config import load
from exporter.web import config as web
from tests.conftest import running
from tools import chart_values

if TYPE_CHECKING:
    from tests.conftest import Demo

ROOT = Path(__file__).parent.parent
CHART = ROOT / "helm" / "baseten-exporter"
FOLDER = Path(__file__).parent / "chart"
GOOD = sorted(FOLDER.glob("*.values.yaml"))
BAD = sorted(FOLDER.glob("*.bad.yaml"))
VERSIONS = [f"1.{minor}" for minor in range(30, 38)]
SECRET = {"apiKeys": {"existingSecret": "baseten"}}

Manifest = dict[str, Any]


def _module(name: str) -> Any:
    """A package of the extra `ops`; a skip where there is none, unless servers are required."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        if os.environ.get("REQUIRE_SERVERS") == "1":
            raise
        return pytest.skip(f"{name} is not installed: pip install '.[ops]'")


def _name(path: Path) -> str:
    return path.name.split(".")[0]


def _read(path: Path) -> Manifest:
    content: Manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


class Helm:
    """The engine, with one chart loaded."""

    def __init__(self, chart: Path) -> None:
        self.engine = _module("helm_python")
        self.folder = chart

    def render(self, values: Mapping[str, Any]) -> dict[str, str]:
        """The documents by template, as `helm template baseten --namespace monitoring` has them."""
        with self.engine.Chart.load(self.folder) as chart:
            pages: dict[str, str] = chart.render(dict(values), name="baseten", namespace="monitoring")
        return {path.partition("/templates/")[2]: page for path, page in pages.items() if page.strip()}

    def manifests(self, values: Mapping[str, Any]) -> list[Manifest]:
        pages = self.render(values)
        notes = pages.pop("NOTES.txt")
        assert notes.endswith("\n")
        return [each for page in pages.values() for each in yaml.safe_load_all(page) if each]

    def one(self, kind: str, values: Mapping[str, Any]) -> Manifest:
        (found,) = [each for each in self.manifests(values) if each["kind"] == kind]
        return found


@pytest.fixture(scope="module")
def helm() -> Helm:
    """The chart as it is shipped."""
    return Helm(CHART)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The chart with few and small rules and dashboards, so that the real ones can change."""
    folder = tmp_path_factory.mktemp("chart") / CHART.name
    shutil.copytree(CHART, folder, ignore=shutil.ignore_patterns("files"))
    shutil.copytree(FOLDER / "files", folder / "files")
    return Helm(folder)


@pytest.fixture(scope="module")
def everything(sample: Helm) -> list[Manifest]:
    """Every manifest of every example, each once."""
    found = [each for path in GOOD for each in sample.manifests(_read(path))]
    return [json.loads(text) for text in sorted({json.dumps(each, sort_keys=True) for each in found})]


@pytest.mark.parametrize("path", GOOD, ids=_name)
def test_renders_what_is_expected(path: Path, sample: Helm) -> None:
    pages = sample.render(_read(path))
    text = "".join(f"# {name}\n{page.strip()}\n---\n" for name, page in sorted(pages.items()))
    golden = path.with_name(f"{_name(path)}.expected.yaml")
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(text, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == text, "if it is as it should be, run with UPDATE_GOLDEN=1"


def test_every_expectation_has_its_values() -> None:
    assert {_name(path) for path in FOLDER.glob("*.expected.yaml")} == {_name(path) for path in GOOD}


@pytest.mark.parametrize("path", BAD, ids=_name)
def test_refuses_in_words_that_help(path: Path, sample: Helm) -> None:
    sentence = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    with pytest.raises(sample.engine.HelmError) as refused:
        sample.render(_read(path))
    assert str(refused.value).rstrip("\n").endswith(sentence)


@pytest.mark.parametrize("path", GOOD, ids=_name)
def test_lints_clean(path: Path, helm: Helm, sample: Helm) -> None:
    chart = sample if _read(path).get("rules") else helm
    report = chart.engine.lint(chart.folder, _read(path), strict=True, kube_version="v1.30.0")
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]
    assert not report["errors"]


def test_lints_clean_as_it_is(helm: Helm) -> None:
    report = helm.engine.lint(helm.folder, None, strict=True)
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


def _of_kubernetes(manifest: Manifest) -> bool:
    group = manifest["apiVersion"].rpartition("/")[0]
    return "." not in group or group.endswith(".k8s.io")


@pytest.mark.parametrize("minor", VERSIONS)
def test_kubernetes_accepts_every_manifest(minor: str, everything: list[Manifest]) -> None:
    kubernetes = _module("kubernetes_validate")
    for manifest in filter(_of_kubernetes, everything):
        assert kubernetes.validate(manifest, minor, strict=True) == minor


def test_the_versions_of_kubernetes_end_with_the_newest_at_hand() -> None:
    assert _module("kubernetes_validate").latest_version().startswith(f"{VERSIONS[-1]}.")


def test_operators_accept_their_manifests(everything: list[Manifest]) -> None:
    kinds = set()
    for manifest in (each for each in everything if not _of_kubernetes(each)):
        kinds.add(kind := manifest["kind"])
        schema = json.loads((FOLDER / "schemas" / f"{kind.lower()}.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator(schema).validate(manifest)
    assert kinds == {"ServiceMonitor", "PodMonitor", "PrometheusRule", "GrafanaDashboard"}


@pytest.mark.parametrize(
    "path", [path for path in GOOD if not _read(path).get("existingConfigMap")], ids=_name
)
def test_the_exporter_accepts_the_config(path: Path, sample: Helm, tmp_path: Path) -> None:
    values = _read(path)
    text = sample.one("ConfigMap", {**values, "extraObjects": [], "dashboards": {}})["data"]["config.yaml"]
    config = tmp_path / "config.yaml"
    config.write_text(_with_files_here(text, tmp_path), encoding="utf-8")
    environ = {"BASETEN_API_KEY": "not-a-real-key", "RESEARCH_KEY": "not-a-real-key"}
    assert load(config, environ).workspaces


def _with_files_here(config: str, folder: Path) -> str:
    """The config with its files in a folder, where they are created."""
    authority = (ROOT / "tests" / "config" / "ca.pem").read_text(encoding="utf-8")
    for place in sorted({word for word in config.split() if word.startswith(("/etc/", "/run/"))}):
        file = folder / place.strip("/").replace("/", "-")
        file.write_text(authority if place.endswith(".pem") else "not-a-real-key", encoding="utf-8")
        config = config.replace(f" {place}\n", f" {file}\n")
    return config


def _web_folder(helm: Helm, values: Mapping[str, Any], folder: Path) -> Path:
    """The mounted web config; its Secrets hold what a real authority has signed."""
    secrets = {each["metadata"]["name"]: each for each in helm.manifests(values) if each["kind"] == "Secret"}
    folder.mkdir()
    authority = trustme.CA()
    leaf = authority.issue_cert("baseten-baseten-exporter.monitoring.svc")
    authority.cert_pem.write_to_path(folder / "client-ca.crt")
    leaf.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    leaf.private_key_pem.write_to_path(folder / "tls.key")
    config = secrets["baseten-baseten-exporter-web"]["stringData"]["web-config.yaml"]
    (folder / "web-config.yaml").write_text(config, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["tls", "password", "client-certificates", "shards-tls"])
def test_the_exporter_accepts_the_web_config(name: str, helm: Helm, tmp_path: Path) -> None:
    values = _read(FOLDER / f"{name}.values.yaml")
    config = web.load(_web_folder(helm, values, tmp_path / "web") / "web-config.yaml")
    assert config.context
    (volume,) = [each for each in _pod_spec(helm, values)["volumes"] if each["name"] == "web"]
    sources = [each["secret"] for each in volume["projected"]["sources"]]
    mounted = {item["path"] for each in sources for item in each.get("items", [])}
    assert {path.name for path in config.files} == {"web-config.yaml"} | mounted


def _pod_spec(helm: Helm, values: Mapping[str, Any]) -> Manifest:
    (found,) = [each for each in helm.manifests(values) if each["kind"] in ("Deployment", "StatefulSet")]
    spec: Manifest = _pod(found)["spec"]
    return spec


def test_a_changed_password_needs_no_restart(helm: Helm) -> None:
    values = _read(FOLDER / "password.values.yaml")
    pods = [
        _pod(
            helm.one("Deployment", {**values, "webConfig": {**values["webConfig"], "basicAuthUsers": users}})
        )
        for users in (values["webConfig"]["basicAuthUsers"], {"other": "$2b$10$" + "a" * 53})
    ]
    assert pods[0] == pods[1]


def test_every_shard_gets_its_own_number_and_the_same_total(helm: Helm) -> None:
    values = {**SECRET, "shards": 4, "serviceMonitor": {"enabled": True}}
    manifests = {each["kind"]: each for each in helm.manifests(values)}
    assert "Deployment" not in manifests
    shards, service = manifests["StatefulSet"], manifests["Service"]
    assert shards["spec"]["replicas"] == 4
    assert (shards["spec"]["serviceName"], service["spec"]["clusterIP"]) == (
        service["metadata"]["name"],
        "None",
    )
    container = _pod(shards)["spec"]["containers"][0]
    assert {"--shard=$(POD_NAME)", "--total-shards=4"} <= set(container["args"])
    assert container["env"] == [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    ]
    found = manifests["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert found.items() <= service["metadata"]["labels"].items()


def test_shards_and_a_single_pod_differ_in_nothing_else(helm: Helm) -> None:
    single, shard = (_pod_spec(helm, {**SECRET, "shards": number}) for number in (1, 2))
    container = shard["containers"][0]
    del container["env"]
    container["args"] = [each for each in container["args"] if "shard" not in each]
    assert shard == single


def _pod(workload: Manifest) -> Manifest:
    template: Manifest = workload["spec"]["template"]
    return template


def _annotations(helm: Helm, values: Mapping[str, Any]) -> Manifest:
    found: Manifest = _pod(helm.one("Deployment", values))["metadata"].get("annotations", {})
    return found


def test_a_changed_config_restarts_the_pod(helm: Helm) -> None:
    before, after = (
        _annotations(helm, {**SECRET, "config": {"poll": {"interval": interval}}})
        for interval in ("30s", "40s")
    )
    assert before.keys() == after.keys() == {"checksum/config"}
    assert before != after
    assert after == _annotations(
        helm, {**SECRET, "config": {"poll": {"interval": "40s"}}, "log": {"level": "debug"}}
    )


def test_a_changed_key_restarts_the_pod_only_if_it_is_in_the_environment(helm: Helm) -> None:
    def restarts(**more: Any) -> bool:
        one, two = (
            _annotations(helm, {"apiKeys": {"values": {"api-key": key}, **more}})
            for key in ("key-1", "key-2")
        )
        return one != two

    assert restarts(env={"BASETEN_API_KEY": "api-key"})
    assert not restarts()


def test_the_pod_meets_the_restricted_standard(everything: list[Manifest]) -> None:
    specs = [_pod(each)["spec"] for each in everything if each["kind"] in ("Deployment", "StatefulSet")]
    specs += [each["spec"] for each in everything if each["kind"] == "Pod"]
    for spec in specs:
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }


def test_nothing_but_the_exporter_is_selected(helm: Helm) -> None:
    values = {**SECRET, "networkPolicy": {"enabled": True}, "podDisruptionBudget": {"enabled": True}}
    manifests = {each["kind"]: each for each in helm.manifests(values)}
    exporter = _pod(manifests["Deployment"])["metadata"]["labels"]
    probe = manifests["Pod"]["metadata"]["labels"]
    selectors = [
        manifests["Service"]["spec"]["selector"],
        manifests["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        manifests["Deployment"]["spec"]["selector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= exporter.items()
        assert not selector.items() <= probe.items()
    allowed = manifests["NetworkPolicy"]["spec"]["ingress"][0]["from"][1]["podSelector"]["matchLabels"]
    assert allowed.items() <= probe.items()


def test_the_monitors_find_what_they_scrape(helm: Helm) -> None:
    service_monitor = helm.one("ServiceMonitor", {**SECRET, "serviceMonitor": {"enabled": True}})
    pod_monitor = helm.one("PodMonitor", {**SECRET, "podMonitor": {"enabled": True}})
    service = helm.one("Service", SECRET)
    labels = _pod(helm.one("Deployment", SECRET))["metadata"]["labels"]
    assert service_monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert pod_monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service_monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def test_the_test_pod_asks_a_real_exporter(helm: Helm, demo: "Demo") -> None:
    container = helm.one("Pod", SECRET)["spec"]["containers"][0]
    assert container["args"] == ["/metrics", "http://baseten-baseten-exporter.monitoring.svc:10310"]
    _runs(container["command"], demo.url, demo.url)


def test_the_test_pod_asks_over_https(helm: Helm, tmp_path: Path) -> None:
    values = _read(FOLDER / "tls.values.yaml")
    container = helm.one("Pod", values)["spec"]["containers"][0]
    assert container["args"] == ["/metrics", "https://baseten-baseten-exporter.monitoring.svc:10310"]
    file = _web_folder(helm, values, tmp_path / "web") / "web-config.yaml"
    command = [sys.executable, "-m", "exporter", "demo", "--web.listen-address=127.0.0.1:0"]
    with running([*command, f"--web.config.file={file}"]) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1].removesuffix("/metrics")
        assert url.startswith("https://")
        _runs(container["command"], url)


def _runs(command: list[str], *urls: str) -> None:
    """Run a container's command against exporters; it must find each ready, and its page."""
    here = [sys.executable, *command[1:], "/metrics", *urls]
    done = subprocess.run(here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines.count("ready") == len(urls)
    assert any(line.startswith("baseten_exporter_target_up{") for line in lines)


@pytest.mark.parametrize("name", ["password", "client-certificates", "existing-web-config"])
def test_there_is_no_test_pod_where_it_would_not_be_let_in(name: str, helm: Helm) -> None:
    kinds = {each["kind"] for each in helm.manifests(_read(FOLDER / f"{name}.values.yaml"))}
    assert "Pod" not in kinds


def _groups(*names: str) -> Iterator[Manifest]:
    for name in names:
        yield from _read(CHART / "files" / "rules" / f"{name}.yaml")["groups"]


def test_the_shipped_rules_arrive_as_they_are(helm: Helm) -> None:
    rule = helm.one("PrometheusRule", {**SECRET, "prometheusRule": {"enabled": True}})
    assert rule["spec"]["groups"] == list(_groups("thresholds", "recording", "alerts"))


def test_every_shipped_threshold_can_be_set(helm: Helm) -> None:
    names = [
        rule["record"].removeprefix("baseten:threshold:")
        for group in _groups("thresholds")
        for rule in group["rules"]
    ]
    values = {name: index + 0.5 for index, name in enumerate(names)}
    own = {**SECRET, "prometheusRule": {"enabled": True}, "rules": {"thresholds": values}}
    groups = helm.one("PrometheusRule", own)["spec"]["groups"]
    found = {rule.get("record"): rule["expr"] for group in groups for rule in group["rules"]}
    for name, value in values.items():
        assert found[f"baseten:threshold:{name}"] == f"vector({value})"


def test_promtool_accepts_the_rules_with_everything_set(helm: Helm, promtool: str, tmp_path: Path) -> None:
    rules = {
        "thresholds": {"loops_gpu_memory_bytes": 80_000_000_000, "error_ratio": 0.000001},
        "thresholdsByDeployment": {"latency_p99_seconds": {"abc123": 5, "def456": 2.5}},
        "alertLabels": {"team": "ml-platform"},
        "runbookUrl": "https://wiki.example/runbooks",
    }
    spec = helm.one("PrometheusRule", {**SECRET, "prometheusRule": {"enabled": True}, "rules": rules})["spec"]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_shipped_dashboards_arrive_as_they_are(helm: Helm) -> None:
    values = {**SECRET, "dashboards": {"sidecar": {"enabled": True}, "operator": {"enabled": True}}}
    manifests = helm.manifests(values)
    sidecar = [
        each["data"] for each in manifests if each["metadata"]["labels"].get("grafana_dashboard") == "1"
    ]
    operator = [each["spec"]["json"] for each in manifests if each["kind"] == "GrafanaDashboard"]
    files = {path.name: json.loads(path.read_text("utf-8")) for path in CHART.glob("files/dashboards/*.json")}
    assert {name: json.loads(text) for data in sidecar for name, text in data.items()} == files
    assert sorted(map(json.loads, operator), key=repr) == sorted(files.values(), key=repr)
    for data in sidecar:
        assert len(json.dumps(data)) < 1_000_000, "a ConfigMap holds at most 1 MiB"


def test_renders_before_there_are_rules_and_dashboards(tmp_path: Path) -> None:
    folder = tmp_path / CHART.name
    shutil.copytree(CHART, folder, ignore=shutil.ignore_patterns("files"))
    values = {**SECRET, "prometheusRule": {"enabled": True}, "dashboards": {"sidecar": {"enabled": True}}}
    assert "PrometheusRule" not in {each["kind"] for each in Helm(folder).manifests(values)}


def test_packages(helm: Helm, tmp_path: Path) -> None:
    archive = Path(helm.engine.package(helm.folder, destination=tmp_path))
    assert archive.name == f"baseten-exporter-{__version__}.tgz"
    assert archive.stat().st_size < 1_000_000, "a release, a Secret, holds at most 1 MiB"


@pytest.mark.parametrize(
    "values", [{}, *({f"{kind}Monitor": {"enabled": True}} for kind in ("service", "pod"))]
)
def test_the_notes_name_the_next_step(values: Mapping[str, Any], helm: Helm) -> None:
    notes = helm.render({**SECRET, **values})["NOTES.txt"]
    assert ("Nothing scrapes it yet" in notes) == (not values)
    assert "rollout status deployment/baseten-baseten-exporter" in notes


def test_the_chart_is_of_this_version() -> None:
    assert _read(CHART / "Chart.yaml")["appVersion"] == __version__


def test_the_table_of_values_is_the_one_the_comments_give() -> None:
    assert chart_values.PAGE.read_text(encoding="utf-8") == chart_values.page(), "run `make docs`"


def test_a_value_without_a_comment_is_noticed() -> None:
    with pytest.raises(chart_values.UndocumentedError, match=r"^web\.path$"):
        list(chart_values.rows("web:\n  # A port.\n  port: 1\n  path: /\n"))


def test_the_schema_knows_the_values_and_no_others() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    refused = {"global", "replicas", "replicaCount", "autoscaling"}
    assert schema["properties"].keys() - refused == _read(CHART / "values.yaml").keys()
    assert list(_open(schema, _read(CHART / "values.yaml"), "")) == []


def _open(schema: Manifest, values: Manifest, prefix: str) -> Iterator[str]:
    """The maps of the chart's own whose schema misses a key, or would take any."""
    for key, value in values.items():
        part = schema["properties"].get(key)
        if part is None:
            yield f"{prefix}{key}"
        elif isinstance(value, dict) and "properties" in part:
            if part["additionalProperties"] is not False:
                yield f"{prefix}{key}"
            yield from _open(part, value, f"{prefix}{key}.")


def test_the_examples_of_the_readme_render(helm: Helm) -> None:
    text = chart_values.PAGE.read_text(encoding="utf-8")
    for example in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        assert helm.manifests(yaml.safe_load(example))
    for link in re.findall(r"\]\((?!https?://)([^)#]+)", text):
        assert (CHART / link).exists(), link


def test_the_examples_of_the_install_page_render(helm: Helm) -> None:
    text = (
        (ROOT / "docs" / "install.md").read_text(encoding="utf-8").replace("$2y$10$...", "$2y$10$" + "a" * 53)
    )
    _, _, section = text.partition("### TLS and passwords in the chart")
    examples = [yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)]
    assert len(examples) == 3
    for example in examples:
        assert helm.manifests({**SECRET, **example})
