from __future__ import annotations

import numpy as np
import pandas as pd

from tachoscope_explorer.page import widgets


def test_numbers_of_a_table_have_four_digits_and_none_before_the_point_is_lost() -> None:
    values = [0.000177778, 29.0859, 123456.7, 0.0, -2.24048, np.nan, np.inf]
    shown = widgets._rounded(pd.DataFrame({"a": values, "name": list("abcdefg"), "count": range(7)}))

    assert shown["a"].tolist()[:5] == [0.0001778, 29.09, 123457.0, 0.0, -2.24]
    assert np.isnan(shown["a"][5]) and np.isinf(shown["a"][6])
    assert shown["count"].tolist() == list(range(7))


def test_a_csv_has_all_digits_and_no_formula() -> None:
    frame = pd.DataFrame({"a": [0.000177778], "name": ["=1+1"]})

    assert widgets.csv(frame) == b"a,name\n0.000177778,'=1+1\n"
