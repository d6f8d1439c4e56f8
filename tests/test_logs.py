"""Log lines: their shape, and what must never stand in them."""

import io
import json
import logging
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter import logs
from exporter.logs import LogFormat, Redactor

KEY = "AbCdEf12.abcdefghijklmnopqrstuvwxyz012345"
ODD_KEY = "a\"b\\c'd/e+f%g"
FORMATS: tuple[LogFormat, ...] = ("logfmt", "json")
NOW = 1796025600.1239


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Logging belongs to the process: put it back as pytest left it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    hooks = sys.excepthook, threading.excepthook
    root.handlers[:] = []
    yield
    sys.excepthook, threading.excepthook = hooks
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    for name in ("apscheduler", "apscheduler.scheduler", "httpcore", "httpx", "uvicorn"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(log_format: LogFormat, level: str = "debug", secrets: tuple[str, ...] = ()) -> io.StringIO:
    redactor = Redactor()
    for secret in secrets:
        redactor.add(secret)
    stream = io.StringIO()
    logs.configure(level, log_format, redactor, stream)
    return stream


def record(
    msg: object = "polled", name: str = "exporter.polling.poller", **extra: object
) -> logging.LogRecord:
    fields = {"name": name, "msg": msg, "levelname": "INFO", "created": NOW}
    return logging.makeLogRecord({**fields, **extra})


def logfmt(*args: Any, **kwargs: Any) -> str:
    return logs.Formatter("logfmt").format(record(*args, **kwargs))


def as_json(*args: Any, **kwargs: Any) -> Any:
    return json.loads(logs.Formatter("json").format(record(*args, **kwargs)))


def test_a_logfmt_line() -> None:
    line = logfmt("poll failed", target="a/b", status=503, after=1.5, again=True, cause=None)
    assert line == (
        'ts=2026-11-30T08:00:00.123Z level=info logger=poller msg="poll failed" '
        "target=a/b status=503 after=1.5 again=true cause=null"
    )


def test_a_json_line() -> None:
    assert as_json("poll failed", status=503, again=True, cause=None, ratio=float("nan"), kind=(1, 2)) == {
        "ts": "2026-11-30T08:00:00.123Z",
        "level": "info",
        "logger": "poller",
        "msg": "poll failed",
        "status": 503,
        "again": True,
        "cause": None,
        "ratio": "nan",
        "kind": "(1, 2)",
    }


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "x"', r'"say \"x\""'),
        ("back\\slash", r'"back\\slash"'),
        ("line\nfeed", r'"line\nfeed"'),
        ("line\u2028separator", r'"line\u2028separator"'),
        ("\x1b[31mred", r'"\u001b[31mred"'),
        ("größe", "größe"),
        ("zwei größen", '"zwei größen"'),
        ("\ud800", r'"\ud800"'),
    ],
)
def test_logfmt_quotes_what_needs_it(value: str, word: str) -> None:
    assert logfmt(value).endswith(f" msg={word}")


def test_libraries_keep_their_whole_name() -> None:
    assert "logger=apscheduler.scheduler " in logfmt(name="apscheduler.scheduler")


def test_an_extra_cannot_pass_for_one_of_our_fields() -> None:
    line = logfmt(level="none", ts="never", **{"odd key=x\n": 1, "": 2})
    assert line == "ts=2026-11-30T08:00:00.123Z level=info logger=poller msg=polled odd_key_x_=1 _=2"


def test_a_traceback_stays_on_its_line() -> None:
    stream = lines("logfmt")
    try:
        raise ValueError("first\nsecond")  # noqa: TRY301 - something to log
    except ValueError:
        logging.getLogger("exporter.app").exception("broken")
    (line,) = stream.getvalue().splitlines()
    assert r'ValueError: first\nsecond"' in line
    assert " msg=broken traceback=" in line


def test_a_stack_stays_on_its_line() -> None:
    stream = lines("json")
    logging.getLogger().info("here", stack_info=True)
    assert json.loads(stream.getvalue())["stack"].startswith("Stack (most recent call last):\n")


def test_configuring_again_replaces_the_handler() -> None:
    first, second = lines("logfmt"), lines("json", "WARNING")
    logging.getLogger("a").info("quiet")
    logging.getLogger("a").warning("loud")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["msg"] == "loud"


def test_the_default_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "logfmt", Redactor())
    logging.getLogger("a").info("hello")
    assert capsys.readouterr().err.endswith(" msg=hello\n")


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(KeyError):
        logs.configure("loud", "logfmt", Redactor())


@pytest.mark.parametrize(
    ("level", "heard"), [("debug", "info"), ("info", "warning"), ("warning", "warning"), ("error", "error")]
)
@pytest.mark.parametrize("name", ["apscheduler.executors", "httpcore.http11", "httpx", "uvicorn.error"])
def test_chatty_libraries_are_quiet_short_of_debug(level: str, heard: str, name: str) -> None:
    stream = lines("json", level)
    for each in ("info", "warning", "error"):
        getattr(logging.getLogger(name), each)("x")
    found = [json.loads(line)["level"] for line in stream.getvalue().splitlines()]
    order = ["info", "warning", "error"]
    assert found == order[order.index(heard) :]


def test_warnings_are_logged() -> None:
    stream = lines("json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn(f"old {KEY}", stacklevel=1)
    assert json.loads(stream.getvalue())["logger"] == "py.warnings"


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("key", [KEY, ODD_KEY], ids=["plain", "odd"])
def test_a_key_is_nowhere(log_format: LogFormat, key: str) -> None:
    stream = lines(log_format, secrets=(key,))
    log = logging.getLogger("exporter.any")
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        log.log(level, "start %s end", key, extra={"header": f"Bearer {key}", "at": {"key": [key]}})
        lower = re.sub("%..", lambda match: match[0].lower(), quote(key, safe=""))
        log.log(level, "quoted %s %s %r %r", quote(key), lower, key, json.dumps([key]))
    try:
        raise ValueError(key) from KeyError(repr(key))  # noqa: TRY301 - something to log
    except ValueError:
        log.exception("failed", stack_info=True)
    text = stream.getvalue()
    assert len(text.splitlines()) == 11
    assert text.count("<redacted>") >= 5 * 7 + 2
    for form in {key, key[2:], quote(key), repr(key)[1:-1], json.dumps(key)[1:-1]}:
        assert form not in text


def test_the_http_library_shows_no_key_at_debug() -> None:
    """Answers may echo a key; requests carry it."""
    answer = f"HTTP/1.1 200 OK\r\nX-Echo: {KEY}\r\nContent-Length: 0\r\n\r\n".encode()
    stream = lines("logfmt", secrets=(KEY,))
    with httpcore.ConnectionPool(network_backend=httpcore.MockBackend([answer])) as pool:
        pool.request("GET", "http://api.test/", headers={"Authorization": f"Bearer {KEY}"})
    assert "X-Echo" in stream.getvalue()
    assert KEY not in stream.getvalue()


def test_a_bad_log_call_costs_neither_its_caller_nor_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    stream = lines("logfmt", secrets=(KEY,))
    logging.getLogger("exporter.any").info("%d polls", KEY)  # noqa: PLE1206, RUF100 - bad on purpose
    assert re.search(
        r'logger=any msg="bad log call at .*test_logs.py:\d+: TypeError"$', stream.getvalue().strip()
    )
    assert KEY not in stream.getvalue() + capsys.readouterr().err


def test_a_closed_stream_is_no_reason_to_print_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    stream = lines("logfmt")
    stream.close()
    logging.getLogger().error("x %s", KEY)
    logging.getLogger().handlers[:] = []
    assert capsys.readouterr().err == ""


def test_a_rotated_key_stays_redacted() -> None:
    redactor = Redactor()
    for secret in ("old-key", "old-key-2", "new-key"):
        redactor.add(secret)
    assert redactor.redact("old-key old-key-2 new-key") == "<redacted> <redacted> <redacted>"


def test_the_oldest_secrets_go_first() -> None:
    redactor = Redactor()
    for number in range(1024):
        redactor.add(f"key-{number:05}")
    redactor.add("key-00000")  # in use again: young again
    redactor.add("key-99999")
    assert redactor.redact("key-00000 key-00001 key-99999") == "<redacted> key-00001 <redacted>"


def test_nothing_is_no_secret() -> None:
    redactor = Redactor()
    redactor.add("")
    assert redactor.redact("text") == "text"


EXTRAS = st.dictionaries(
    st.text(max_size=8).filter(lambda name: name not in logs._NOT_EXTRA),
    st.text() | st.floats() | st.integers() | st.none() | st.lists(st.text()) | st.binary(),
)


@given(st.text(), EXTRAS)
def test_any_record_is_one_line(msg: str, extras: dict[str, Any]) -> None:
    for log_format in FORMATS:
        line = logs.Formatter(log_format).format(record(msg, **extras))
        assert len(line.splitlines()) == 1
    assert json.loads(line)["msg"] == msg


@given(
    st.text(),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=3).map(KEY.__add__),
    st.text(),
)
def test_any_key_in_any_text_is_redacted(before: str, key: str, after: str) -> None:
    redactor = Redactor()
    redactor.add(key)
    for log_format in FORMATS:
        line = redactor.redact(
            logs.Formatter(log_format).format(record(before + key + after, again=repr(key)))
        )
        assert KEY not in line
        assert "<redacted>" in line
    assert "<redacted>" in json.loads(line)["msg"]


def test_what_nobody_caught_is_logged_without_its_secrets() -> None:
    stream = lines("logfmt", secrets=(KEY,))

    def fail() -> None:
        raise ValueError(KEY)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    sys.excepthook(ValueError, ValueError(KEY), None)
    text = stream.getvalue()
    assert text.count("level=critical") == 2
    assert text.count("ValueError: <redacted>") == 2
    assert KEY not in text
    assert text.count("\n") == 2


def test_skipped_polls_are_counted_and_not_logged() -> None:
    stream = lines("logfmt", level="info")
    logging.getLogger("apscheduler.scheduler").warning("skipped")
    logging.getLogger("apscheduler.executors").warning("kept")
    assert "skipped" not in stream.getvalue()
    assert "kept" in stream.getvalue()
