"""What the pages of fem have in common: one file that asks the network for nothing and whose text is never script."""

import base64
import hashlib
import os
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def part(name: str) -> str:
    """A style sheet, script or markup that stands beside this file."""
    return (FOLDER / name).read_text(encoding="utf-8")


def tag(name: str, *content: str, **attributes: str) -> str:
    text = "".join(f' {key.strip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return f"<{name}{text}>{''.join(content)}</{name}>"


def digest(text: str) -> str:
    """What a policy calls a script by, so that no other one runs."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def document(title: str, scripts: str, style: str, body: str) -> str:
    """scripts: the sources of scripts that the policy allows."""
    policy = f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:"
    head = (
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        + tag("title", escape(title))
        + tag("style", part("html_page.css") + style)
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def write(out: Path, text: str) -> None:
    unfinished = out.with_name(out.name + ".part")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, out)
