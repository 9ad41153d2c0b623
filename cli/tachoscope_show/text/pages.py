"""Pages made of the templates, in which all text is escaped unless a filter says that it is markup."""

from __future__ import annotations

import functools
import re

import jinja2
from markupsafe import Markup, escape

from tachoscope_show.text.state_bar import color
from tachoscope_show.text.units import duration, percent, seconds, size


def rendered(template: str, /, **given: object) -> Markup:
    """Return a template with what it is given; a name that it is not given is an error."""
    return Markup(_environment().get_template(template).render(**given))  # noqa: S704  # the environment escapes


def part(template: str, macro: str, /, *given: object) -> Markup:
    """Return a macro of a template with its arguments."""
    return Markup(getattr(_environment().get_template(template).module, macro)(*given))  # noqa: S704  # the environment escapes


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("tachoscope_show"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "call": lambda value, function: function(value),
        "coded": coded,
        "color": color,
        "duration": duration,
        "percent": percent,
        "seconds": seconds,
        "size": size,
    }
    return made


def coded(text: str) -> Markup:
    """Return text with what stands between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704  # escaped before
