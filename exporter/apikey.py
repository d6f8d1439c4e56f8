"""An API key: where it comes from, and its present value."""

import logging
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

_LONGEST = 8192
_log = logging.getLogger(__name__)

_Stamp = tuple[int, int, int]


class ApiKeyError(Exception):
    """A key that cannot be used; the message names the source and never shows the value."""


class ApiKey:
    """A key from an environment variable, or from a file that is read again whenever it changes.

    Thread-safe; equal to another key from the same source, whatever their values; its value appears in no
    repr. A file that turns bad later costs nothing but a log line: the last good value stays.
    """

    def __init__(
        self, source: str, value: str, path: Path | None = None, stamp: _Stamp | None = None
    ) -> None:
        self._source = source
        self._value = value
        self._path = path
        self._stamp = stamp
        self._complaint = ""
        self._listeners: list[Callable[[str], None]] = []
        self._lock = threading.Lock()

    @classmethod
    def from_env(cls, name: str, value: str | None) -> Self:
        """The key in the variable `name`, whose value is None where it is not set; else ApiKeyError."""
        source = f"environment variable {name}"
        if value is None:
            raise ApiKeyError(f"{source} is not set")
        return cls(source, _clean(value, source))

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """The key in a file; ApiKeyError when there is none."""
        stamp = _stamp(path)
        return cls(_file(path), _from_file(path), path, stamp)

    def read(self) -> str:
        """The present value."""
        with self._lock:
            if self._path is not None:
                self._follow(self._path)
            return self._value

    def refresh(self) -> str:
        """The present value, read again even if the file looks unchanged: for when the API says 401."""
        with self._lock:
            self._stamp = None
        return self.read()

    def on_value(self, listener: Callable[[str], None]) -> None:
        """Tell `listener` the present value now, and each later one before it is used."""
        with self._lock:
            self._listeners.append(listener)
            listener(self._value)

    def _follow(self, path: Path) -> None:
        """Take up the file's content if it changed. A failure is logged once and tried again next time."""
        try:
            # The stamp comes first: a write in between is then seen as a change next time.
            stamp = _stamp(path)
            if stamp == self._stamp:
                return
            value = _from_file(path)
        except ApiKeyError as error:
            if str(error) != self._complaint:
                _log.warning("API key not read again, the last good one stays", extra={"error": error})
            self._complaint = str(error)
            return
        self._stamp, self._complaint = stamp, ""
        if value != self._value:
            self._value = value
            for listener in self._listeners:
                listener(value)

    def __eq__(self, other: object) -> bool:
        return self._source == other._source if isinstance(other, ApiKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._source)

    def __repr__(self) -> str:
        return f"ApiKey({self._source})"


def _file(path: Path) -> str:
    return f"file {str(path)!r}"


def _stamp(path: Path) -> _Stamp:
    """What tells one content from the next; links are followed, since Kubernetes swaps those."""
    try:
        status = path.stat()
    except OSError as error:
        raise ApiKeyError(f"{_file(path)} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise ApiKeyError(f"{_file(path)} is not a regular file")
    return status.st_mtime_ns, status.st_size, status.st_ino


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST + 1)
        return _clean(content.decode("utf-8-sig"), _file(path))
    except OSError as error:
        raise ApiKeyError(f"{_file(path)} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ApiKeyError(f"{_file(path)} is not UTF-8 text") from None  # the error would carry the content


def _clean(raw: str, source: str) -> str:
    value = raw.removeprefix("\ufeff").strip()
    if not value:
        raise ApiKeyError(f"{source} is empty")
    if len(value) > _LONGEST or not re.fullmatch("[!-~]+", value):
        raise ApiKeyError(f"{source} holds more than a bare key: spaces, control or non-ASCII characters")
    return value
