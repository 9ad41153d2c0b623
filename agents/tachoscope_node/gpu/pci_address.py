"""PCI addresses, which NVML, the kernel's log and /proc write differently."""

from __future__ import annotations


def pci_address(text: str) -> str:
    """Return a PCI address as `domain:bus:device` in lower case, however NVML or the kernel writes it; else the text."""
    parts = text.lower().removeprefix("pci:").split(".")[0].split(":")
    try:
        domain, bus, device = (int(part, 16) for part in ["0", *parts][-3:])
    except ValueError:
        return text
    return f"{domain:04x}:{bus:02x}:{device:02x}"
