"""What the scraper accepts: Accept and Accept-Encoding, read as HTTP means them."""

from collections.abc import Iterator

from exporter.exposition import Format


def page_format(accept: str) -> Format:
    """The format the client likes best of the two there are; text where it does not care."""
    best, best_quality = Format.TEXT, 0.0
    for media_type, params, quality in _choices(accept):
        offered = _offer(media_type, params)
        if offered is not None and quality > best_quality:
            best, best_quality = offered, quality
    return best


def accepts_gzip(accept_encoding: str) -> bool:
    qualities = {coding: quality for coding, _, quality in _choices(accept_encoding)}
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0


def _offer(media_type: str, params: dict[str, str]) -> Format | None:
    if media_type == "application/openmetrics-text":
        return Format.OPENMETRICS if params.get("version", "1.0.0") in ("0.0.1", "1.0.0") else None
    return Format.TEXT if media_type in ("text/plain", "text/*", "*/*") else None


def _choices(header: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """The parts of a header: (value, parameters, quality)."""
    for part in header.lower().split(","):
        value, *raw_params = (piece.strip() for piece in part.split(";"))
        pairs = (piece.partition("=") for piece in raw_params)
        params = {name.strip(): text.strip(' "') for name, _, text in pairs}
        yield value, params, _quality(params.get("q", "1"))


def _quality(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0
