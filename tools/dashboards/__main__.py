"""Write every dashboard to its file."""

from tools.dashboards import reading, writing

if __name__ == "__main__":
    reading.FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in writing.documents().items():
        (reading.FOLDER / name).write_text(text, encoding="utf-8")
