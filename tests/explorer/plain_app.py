"""Shows names in all places where Streamlit reads Markdown; for `test_plain`. `NAMES`: a JSON file of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import streamlit as st

from tachoscope_explorer.page.widgets import escape_markdown

NAMES = json.loads(Path(os.environ["NAMES"]).read_text())

st.title("Names")
for number, name in enumerate(NAMES):
    st.container(key=f"alone-{number}").markdown(escape_markdown(name))
    st.container(key=f"within-{number}").markdown(f"- **{escape_markdown(name)}** of _{escape_markdown(name)}_")
    st.container(key=f"label-{number}").button(escape_markdown(name), key=f"button-{number}")
    st.container(key=f"hint-{number}").info(f"a {escape_markdown(name)} b")
st.subheader("All")
