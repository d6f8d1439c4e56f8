"""Where keys come from, and how they follow their file."""

import os
import threading
from pathlib import Path

import pytest

from exporter.apikey import ApiKey, ApiKeyError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("first-key\n")
    return path


def rewrite(path: Path, text: str) -> None:
    """Change content and time, however coarse the file system's clock is."""
    path.write_text(text)
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


@pytest.mark.parametrize("raw", ["key", " key\n", "\ufeffkey\r\n", "\tkey\u00a0"])
def test_what_surrounds_a_key_is_stripped(raw: str, file: Path) -> None:
    file.write_text(raw, "utf-8")
    assert ApiKey.from_env("KEY", raw).read() == ApiKey.from_file(file).read() == "key"


BAD = {
    "": "is empty",
    " \n\ufeff": "holds more than a bare key",
    "\ufeff \n": "is empty",
    "s3cret key": "holds more than a bare key",
    "s3cret\nkey": "holds more than a bare key",
    "s3cret\x00key": "holds more than a bare key",
    "s3crét": "holds more than a bare key",
    "s3cret" * 2000: "holds more than a bare key",
}


@pytest.mark.parametrize("raw", BAD, ids=range(len(BAD)))
def test_a_bad_key_is_refused_unseen(raw: str, file: Path) -> None:
    file.write_text(raw, "utf-8")
    with pytest.raises(ApiKeyError, match=f"^environment variable KEY {BAD[raw]}") as env:
        ApiKey.from_env("KEY", raw)
    with pytest.raises(ApiKeyError, match=f"^file '.*' {BAD[raw]}") as caught:
        ApiKey.from_file(file)
    assert "s3cr" not in f"{env.value!r} {caught.value!r}"


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(ApiKeyError, match=r"^environment variable KEY is not set$"):
        ApiKey.from_env("KEY", None)


def test_a_file_in_another_encoding_is_refused_unseen(file: Path) -> None:
    file.write_bytes("s3cret".encode("utf-16"))
    with pytest.raises(ApiKeyError, match=r"is not UTF-8 text$") as caught:
        ApiKey.from_file(file)
    assert caught.value.__cause__ is None


def test_only_regular_files_hold_keys(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ApiKeyError, match=r"is not a regular file$"):
            ApiKey.from_file(path)
    with pytest.raises(ApiKeyError, match="cannot be read: No such file"):
        ApiKey.from_file(tmp_path / "none")


def test_a_changed_file_is_read_again(file: Path) -> None:
    key = ApiKey.from_file(file)
    rewrite(file, "other-key")
    assert key.read() == "other-key"


def test_an_unchanged_file_is_read_again_only_on_refresh(file: Path) -> None:
    key = ApiKey.from_file(file)
    before = file.stat()
    file.write_text("other-key\n")  # the same size
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert key.read() == "first-key"
    assert key.refresh() == "other-key"


def test_a_swapped_link_is_a_change(tmp_path: Path) -> None:
    """Kubernetes puts a Secret's new version into place by swapping a link to its folder."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text(name)
        os.utime(tmp_path / name / "key", ns=(0, 0))
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "key").symlink_to("..data/key")
    key = ApiKey.from_file(tmp_path / "key")
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").rename(tmp_path / "..data")
    assert key.read() == "two"


@pytest.mark.parametrize("content", ["", "two words"])
def test_a_file_that_turns_bad_leaves_the_last_good_key(
    content: str, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = ApiKey.from_file(file)
    rewrite(file, content)
    assert [key.read(), key.refresh(), key.read()] == ["first-key"] * 3
    assert len(caplog.records) == 1
    assert content not in caplog.text or not content
    rewrite(file, "third-key")
    assert key.read() == "third-key"


def test_a_file_that_goes_leaves_the_last_good_key(file: Path) -> None:
    key = ApiKey.from_file(file)
    file.unlink()
    assert key.refresh() == "first-key"


def test_a_key_from_the_environment_stays(file: Path) -> None:
    key = ApiKey.from_env("KEY", "fixed")
    assert key.refresh() == key.read() == "fixed"


def test_listeners_hear_of_every_value_once(file: Path) -> None:
    key = ApiKey.from_file(file)
    heard: list[str] = []
    key.on_value(heard.append)
    key.refresh()
    rewrite(file, "other-key")
    key.read()
    assert heard == ["first-key", "other-key"]


def test_keys_are_equal_by_source_and_never_shown(file: Path, tmp_path: Path) -> None:
    key = ApiKey.from_env("KEY", "s3cret")
    assert key == ApiKey.from_env("KEY", "other")
    assert hash(key) == hash(ApiKey.from_env("KEY", "other"))
    assert key != ApiKey.from_env("OTHER", "s3cret")
    assert key != "s3cret"
    assert ApiKey.from_file(file) == ApiKey.from_file(file)
    assert repr(key) == str(key) == "ApiKey(environment variable KEY)"
    assert repr(ApiKey.from_file(file)) == f"ApiKey(file '{file}')"


def test_threads_see_whole_keys(file: Path) -> None:
    key = ApiKey.from_file(file)
    seen: set[str] = set()
    start = threading.Barrier(5)

    def read() -> None:
        start.wait()
        seen.update(key.refresh() for _ in range(200))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    start.wait()
    for name in ("other-key", "third-key"):
        replacement = file.with_suffix(".new")
        replacement.write_text(name)
        replacement.replace(file)
    for thread in threads:
        thread.join()
    assert seen <= {"first-key", "other-key", "third-key"}
    assert key.read() == "third-key"
