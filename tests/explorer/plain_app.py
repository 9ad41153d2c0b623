"""Shows names in all places where Streamlit reads Markdown; for `test_plain`. `NAMES`: a JSON file of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import streamlit as st

from tachoscope_explorer.page.widgets import plain

NAMES = json.loads(Path(os.environ["NAMES"]).read_text())

st.title("Names")
for number, name in enumerate(NAMES):
    st.container(key=f"alone-{number}").markdown(plain(name))
    st.container(key=f"within-{number}").markdown(f"- **{plain(name)}** of _{plain(name)}_")
    st.container(key=f"label-{number}").button(plain(name), key=f"button-{number}")
    st.container(key=f"hint-{number}").info(f"a {plain(name)} b")
st.subheader("All")
