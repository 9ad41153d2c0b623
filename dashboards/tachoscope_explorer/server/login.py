"""The page that asks for the password. It needs nothing but itself: no script, no file, no other host."""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re

from tachoscope_core.report.palette import BAD, OK

PATH, OUT = "/login", "/logout"
_STYLE = f"""
:root {{ color-scheme: light dark; --back: #ffffff; --ink: #262730; --line: #8b8d97; --bad: {BAD}; --go: #00664a }}
@media (prefers-color-scheme: dark) {{
  :root {{ --back: #0e1117; --ink: #fafafa; --line: #8b8d97; --bad: #ff8080; --go: {OK} }}
}}
* {{ box-sizing: border-box }}
body {{ margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--back); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif }}
main {{ width: min(24rem, 100vw); padding: 1.5rem }}
h1 {{ font-size: 1.5rem; margin: 0 0 1.5rem }}
label {{ display: block; margin-bottom: .25rem }}
input, button {{ width: 100%; font: inherit; padding: .6rem .75rem; border-radius: .5rem }}
input {{ border: 1px solid var(--line); background: var(--back); color: var(--ink) }}
button {{ margin-top: 1rem; border: 0; background: #00664a; color: #ffffff; cursor: pointer }}
input:focus-visible, button:focus-visible {{ outline: 3px solid var(--go); outline-offset: 2px }}
p {{ margin: 1rem 0 0; color: var(--bad) }}
""".strip()
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; form-action 'self'; frame-ancestors 'self'; base-uri 'none'"
)
"""The Content-Security-Policy of these pages."""
WRONG = "Wrong password."
BUSY = "Many are trying to log in just now: try again."
_LOCAL = re.compile(r"/(?![/\\])[!-\[\]-~]{0,4000}")


def page(next_: str, said: str = "") -> bytes:
    """Return the page as HTML.

    Args:
        next_: the address to go on to. said: what is wrong, a sentence.
    """
    alert = f'<p role="alert" id="said">{html.escape(said)}</p>' if said else ""
    described = ' aria-describedby="said" aria-invalid="true"' if said else ""
    return _document(
        f"""<main>
<h1>tachoscope</h1>
<form method="post" action="{PATH}">
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required autofocus{described}>
<input type="hidden" name="next" value="{html.escape(next_)}">
<button>Log in</button>
{alert}
</form>
</main>"""
    )


def once_more() -> bytes:
    """Return a page that asks for its own address again.

    A browser that follows a link from another site leaves out a cookie that is strictly of this site. Asked by this page, it sends
    it.
    """
    return _document("", '<meta http-equiv="refresh" content="0">')


def please_wait(seconds: float) -> str:
    """Return what is said to one who has typed too many wrong passwords."""
    whole = math.ceil(seconds)
    return f"Too many wrong passwords: try again in {whole} {'second' if whole == 1 else 'seconds'}."


def next_of(address: str) -> str:
    """Return an address to go on to if it is one of this site, else the root."""
    local = _LOCAL.fullmatch(address) and not address.startswith((PATH, OUT))
    return address if local else "/"


def _document(body: str, head: str = "") -> bytes:
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>tachoscope</title>
<link rel="icon" href="data:,">
{head}<style>{_STYLE}</style>
</head>
<body>
{body}
</body>
</html>
""".encode()
