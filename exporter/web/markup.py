"""HTML that is escaped by construction: whatever is not markup already becomes text."""

from html import escape

_VOID = ("br", "input", "link", "meta")


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


def element(tag: str, *children: object, **attributes: object) -> Html:
    """`class_="x"` becomes class="x", `aria_sort` aria-sort; None is no attribute, and no child."""
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Html(f"<{tag}{said}>")
    return Html(f"<{tag}{said}>{join(*children)}</{tag}>")


def join(*children: object) -> Html:
    return Html("".join(map(_html, children)))


def _html(child: object) -> str:
    if isinstance(child, Html):
        return child
    return "" if child is None else escape(str(child))
