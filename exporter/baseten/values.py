"""Single raw values of answers, each judged by itself."""

from datetime import UTC, datetime


def clean_text(value: str) -> str:
    """Text that can be encoded: a lone surrogate, which JSON can smuggle in, becomes `?`."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def label_text(raw: object) -> str | None:
    """A label's value as text ("" where it is null), None where it is a list or an object."""
    if isinstance(raw, str):
        return clean_text(raw)
    if raw is None:
        return ""
    if isinstance(raw, bool):
        return str(raw).lower()
    return str(raw) if isinstance(raw, int | float) else None


def parse_time(raw: object) -> float | None:
    """A timestamp in seconds since the epoch, None for what is none. Without an offset it is UTC."""
    if not isinstance(raw, str):
        return None
    try:
        time = datetime.fromisoformat(raw)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
