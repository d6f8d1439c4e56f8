"""The documentation says what the code does."""

from tools import metrics_page


def test_metrics_page_is_the_one_the_tables_give() -> None:
    assert metrics_page.PAGE.read_text(encoding="utf-8") == metrics_page.page(), "run `make docs`"
