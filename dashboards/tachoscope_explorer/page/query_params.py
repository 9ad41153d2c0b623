"""Choices on a page that follow its address, and that the address follows: a link shows them, and they can be sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st


def follow(key: str, wanted: object) -> None:
    """Set a widget to what the address asks for, if that is another thing than when the page was last run.

    What a person has just chosen is not in the address yet, and stays.
    """
    seen = f"{key} in the address"
    if seen not in st.session_state or st.session_state[seen] != wanted:
        st.session_state[key] = wanted
        st.session_state[seen] = wanted


def choice(label: str, options: Sequence[str], wanted: str, key: str, *, none: str, words: Callable[[str], str] = str) -> str:
    """Return what is chosen of some options; empty: nothing. What an address asks for and is not an option is offered, too.

    Args:
        label: Markdown. none: shown where nothing is chosen. words: shows an option, as text.
    """
    offered = [*options] if not wanted or wanted in options else [wanted, *options]
    follow(key, wanted or None)
    extra: dict[str, Any] = {"format_func": words, "placeholder": none}
    return st.selectbox(label, offered, index=None, key=key, **extra) or ""
