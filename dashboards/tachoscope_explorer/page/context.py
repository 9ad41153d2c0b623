"""What a page is shown with: how the explorer was started, and what its address asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from tachoscope_explorer.page import settings
from tachoscope_explorer.page.settings import Settings
from tachoscope_explorer.page.view import View, parameters_of, view_of


@dataclass(frozen=True, slots=True)
class Context:
    """What pages get. `pages`: Streamlit's pages by their path, for links."""

    settings: Settings
    view: View
    pages: dict[str, Any] = field(default_factory=dict)

    def link(self, label: str, page: str, view: View, *, icon: str | None = None, help_: str | None = None) -> None:
        """Put a link to another page on this one; `label` is Markdown, see `widgets.escape_markdown`."""
        st.page_link(self.pages[page], label=label, icon=icon, help=help_, query_params=parameters_of(view))

    def open_page(self, page: str, view: View) -> None:
        """Leave for another page."""
        st.switch_page(self.pages[page], query_params=parameters_of(view))


def current() -> Context:
    """Return the context of the run that Streamlit is in."""
    return Context(settings.chosen(), view_of(st.query_params.to_dict()))


def look_at(view: View) -> None:
    """Make the address of this page that of a view, so that it can be sent; the page is not run again for that."""
    wanted = parameters_of(view)
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)
