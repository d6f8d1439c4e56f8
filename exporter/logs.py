"""Log lines: logfmt or JSON, one line per record, without secrets."""

import json
import logging
import math
import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, TextIO
from urllib.parse import quote

LogFormat = Literal["logfmt", "json"]

_SECRETS = 1024
_BEGINNING = 12
_REDACTED = "<redacted>"
_CHATTY = ("apscheduler", "httpcore", "httpx", "uvicorn")
_NOT_EXTRA = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"})
_BARE = re.compile(r'[^\s"=\\]+')


class Redactor:
    """Replaces secrets in text; keeps the newest 1024 of them. Thread-safe.

    A long one also where an excerpt cuts it off, unless that leaves less than twelve characters of it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._longest_first: tuple[re.Pattern[str], ...] = ()
        self._rests: dict[str, tuple[str, ...]] = {}

    def add(self, secret: str) -> None:
        if not secret:
            return
        with self._lock:
            known = self._patterns.pop(secret, None)
            self._patterns[secret] = known or re.compile(_pattern(secret))
            if len(self._patterns) > _SECRETS:
                del self._patterns[next(iter(self._patterns))]
            # One secret may be the beginning of another.
            longest_first = sorted(self._patterns, key=len, reverse=True)
            self._longest_first = tuple(self._patterns[each] for each in longest_first)
            self._rests = _rests(longest_first)

    def redact(self, text: str) -> str:
        for pattern in self._longest_first:
            text = pattern.sub(_REDACTED, text)
        for beginning, rests in self._rests.items():
            if beginning in text:
                text = _without_beginnings(beginning, rests, text)
        return text


def _rests(secrets: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """How long secrets go on, by how they begin."""
    rests: dict[str, tuple[str, ...]] = {}
    for secret in secrets:
        if len(secret) > _BEGINNING:
            beginning, rest = secret[:_BEGINNING], secret[_BEGINNING:]
            rests[beginning] = (*rests.get(beginning, ()), rest)
    return rests


def _without_beginnings(beginning: str, rests: Sequence[str], text: str) -> str:
    before, *parts = text.split(beginning)
    cuts = (max(_common(part, rest) for rest in rests) for part in parts)
    return before + "".join(_REDACTED + part[cut:] for part, cut in zip(parts, cuts, strict=True))


def _common(left: str, right: str) -> int:
    """How many characters they have in common from the start."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(left), len(right)))


def _pattern(secret: str) -> str:
    return "".join(each if each.isascii() and each.isalnum() else _forms(each) for each in secret)


def _forms(character: str) -> str:
    """A special character as it stands in plain, quoted (however often), JSON and URL text."""
    forms = {character, json.dumps(character)[1:-1], quote(character, safe="")}
    return rf"(?:\\*(?:{'|'.join(f'(?i:{re.escape(form)})' for form in sorted(forms))}))"


class Formatter(logging.Formatter):
    """Renders a record and the `extra` it was logged with on one line."""

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._render = {"logfmt": _logfmt, "json": _json}[log_format]

    def format(self, record: logging.LogRecord) -> str:
        return self._render(self._fields(record))

    def _fields(self, record: logging.LogRecord) -> dict[str, object]:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, object] = {
            "ts": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": _short(record.name),
            "msg": record.getMessage(),
        }
        extras = {_key(name): value for name, value in vars(record).items() if name not in _NOT_EXTRA}
        traceback = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        stack = {"stack": record.stack_info} if record.stack_info else {}
        return fields | extras | fields | traceback | stack  # our own fields come first and win


class _Handler(logging.StreamHandler[TextIO]):
    def __init__(self, redactor: Redactor, stream: TextIO | None) -> None:
        super().__init__(stream)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        try:
            line = super().format(record)
        except Exception as error:  # noqa: BLE001 - a bad log call must not cost its caller
            line = super().format(_stand_in(record, error))
        return self._redactor.redact(line)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Stay silent: the default prints the record's arguments, secrets included."""


def configure(level: str, log_format: LogFormat, redactor: Redactor, stream: TextIO | None = None) -> None:
    """Make this the process's only logging: to `stream` (stderr), with `redactor` over every line.

    `level` is a name that logging knows, in any case. Chatty libraries stay at warnings short of debug.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    handler = _Handler(redactor, stream)
    handler.setFormatter(Formatter(log_format))
    logging.basicConfig(level=threshold, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    quiet = logging.NOTSET if threshold <= logging.DEBUG else max(threshold, logging.WARNING)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(quiet)
    # It warns of every skipped poll; those are counted instead.
    logging.getLogger("apscheduler.scheduler").setLevel(
        logging.NOTSET if quiet == logging.NOTSET else logging.ERROR
    )
    # What nobody caught goes the same way, so that a traceback is redacted, too.
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda hook: _log_uncaught(hook.exc_type, hook.exc_value, hook.exc_traceback)


def _log_uncaught(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    if error is not None and not issubclass(kind, SystemExit | KeyboardInterrupt):
        logging.getLogger(__name__).critical("bug: nobody caught this", exc_info=(kind, error, trace))


def _stand_in(record: logging.LogRecord, error: Exception) -> logging.LogRecord:
    message = f"bad log call at {record.pathname}:{record.lineno}: {type(error).__name__}"
    kept = {"name": record.name, "levelname": record.levelname, "created": record.created}
    return logging.makeLogRecord({**kept, "msg": message})


def _short(name: str) -> str:
    """`poller` for our own `exporter.polling.poller`; a library's name stays whole."""
    return name.rpartition(".")[2] if name.startswith("exporter.") else name


def _key(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII) or "_"


def _logfmt(fields: Mapping[str, object]) -> str:
    return " ".join(f"{key}={_word(value)}" for key, value in fields.items())


def _word(value: object) -> str:
    text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    if _BARE.fullmatch(text) and text.isprintable():
        return text
    # Other alphabets stay readable; an unprintable character, such as a line separator, is escaped.
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _json(fields: Mapping[str, object]) -> str:
    return json.dumps({key: _plain(value) for key, value in fields.items()})


def _plain(value: object) -> object:
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if value is None or (isinstance(value, str | int | float) and finite) else str(value)
