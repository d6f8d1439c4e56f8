"""Write docs/targets.schema.json from the types that `/api/v1/targets` is encoded from: `make docs`."""

import json
from pathlib import Path

import msgspec

from exporter.web.status import Status

PAGE = Path(__file__).parent.parent / "docs" / "targets.schema.json"


def page() -> str:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **msgspec.json.schema(Status),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
