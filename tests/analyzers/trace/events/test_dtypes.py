import pytest

from tachoscope_analyzers.trace.events.dtypes import element_bytes


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("Float", 4),
        ("float", 4),
        ("c10::BFloat16", 2),
        ("long int", 8),
        ("torch.float16", 2),
        ("Byte", 1),
        ("Float8_e4m3fn", 1),
        ("c10::complex<double>", 16),
        ("c10::complex<float>", 8),
        ("Double", 8),
        ("unsigned char", 1),
        ("Bool", 1),
        ("int", 4),
    ],
)
def test_an_element_has_its_size_whoever_names_the_type(name: str, size: int) -> None:
    assert element_bytes(name) == size


@pytest.mark.parametrize("name", ["", "TensorList", "Scalar", "floatish"])
def test_a_type_that_is_not_known_has_no_size(name: str) -> None:
    assert element_bytes(name) == -1
