from tachoscope_core.report.report import Change
from tachoscope_show.report.change_rows import rows, shortened

KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::"


def change(**values: object) -> Change:
    given = {"kind": "kernel", "name": "a", "baseline_name": "a", "matched": "exact", "baseline_seconds": 0.001, "seconds": 0.002}
    return Change(**(given | values))  # type: ignore[arg-type]


def test_names_that_begin_alike_are_cut_so_that_they_still_differ() -> None:
    names = [f"{KERNEL}{one}Functor<float>>(int, float)" for one in ("Add", "Mul", "AddCmul", "Sqrt")]

    short = shortened(names)

    assert len(set(short.values())) == len(names)
    assert max(map(len, short.values())) <= 50
    assert "Mul" in short[names[1]]


def test_a_short_name_is_left_as_it_is() -> None:
    assert shortened(["gemm", "x" * 80]) == {"gemm": "gemm", "x" * 80: "x" * 49 + "…"}


def test_what_was_renamed_says_from_what_and_how_many_names_are_in_the_row() -> None:
    (row,) = rows([change(name="ampere", baseline_name="volta", matched="normalised", names=3, baseline_names=2)])

    assert (row.name, row.was) == ("ampere and 2 alike", "volta and 1 alike")


def test_what_has_no_calls_shows_none() -> None:
    (without, calls) = rows([change(kind="operator"), change(kind="operator", count=4.0)])

    assert (without.calls, calls.calls) == ("", "0 → 4")


def test_equal_sides_are_no_difference_at_all() -> None:
    assert rows([change(kind="step", seconds=0.001)]) == []


def test_signs_are_of_the_difference() -> None:
    found = rows([change(), change(seconds=0.0), change(seconds=0.001)])

    assert [row.difference for row in found] == ["+1.0 ms", "-1.0 ms", "0 µs"]
