from tachoscope_node.gpu.pci_address import pci_address
from trying import each


@each("form", ["0000:9b:00", "00000000:9B:00.0", "PCI:0000:9b:00", "9b:00", "0000:9B:00.0"])
def test_a_pci_address_is_the_same_however_it_is_written(form: str) -> None:
    assert pci_address(form) == "0000:9b:00"


def test_a_domain_of_more_than_four_digits_is_kept_and_what_is_no_address_too() -> None:
    assert pci_address("00009D3B:00:00.0") == "9d3b:00:00"
    assert pci_address("somewhere") == "somewhere"
