"""Makes a PNG of a page small: its 256 commonest colours, and the first screens of a long one.

A browser decodes it, since no library here does.
"""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
from playwright.sync_api import Page

COLORS = 256
MOST_ROWS = 4800
_KEPT_BITS = 0xF8F8F8
"""Colours that differ in the last three bits of a channel only are one."""
_PIXELS = """async (source) => {
  const image = new Image();
  image.src = source;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let place = 0; place < bytes.length; place += 32768) text += String.fromCharCode(...bytes.subarray(place, place + 32768));
  return [image.width, image.height, btoa(text)];
}"""
Pixels = npt.NDArray[np.uint32]


def shrink(page: Page, path: Path) -> None:
    """Write a picture again, smaller; one that is higher than `MOST_ROWS` ends between two panels."""
    width, height, content = page.evaluate(_PIXELS, f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}")
    channels = np.frombuffer(base64.b64decode(content), dtype=np.uint8).reshape(height, width, 4).astype(np.uint32)
    pixels: Pixels = channels[..., 0] << 16 | channels[..., 1] << 8 | channels[..., 2]
    if height > MOST_ROWS:
        (empty,) = np.nonzero((pixels[:MOST_ROWS] == pixels[0, 0]).all(axis=1))
        height, pixels = int(empty[-1]), pixels[: empty[-1]]
    palette, places = _reduced(pixels)
    rows = np.hstack([np.zeros((height, 1), dtype=np.uint8), places])
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", b"".join(int(color).to_bytes(3, "big") for color in palette)),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    ]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts))


def _reduced(pixels: Pixels) -> tuple[Pixels, npt.NDArray[np.uint8]]:
    """Return the colours that there are most of, no two alike to the eye, and of each pixel the place of the nearest."""
    every, places, counts = np.unique(pixels, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    _, first = np.unique(every[order] & _KEPT_BITS, return_index=True)
    palette = every[order][np.sort(first)[:COLORS]]
    nearest = np.empty(len(every), dtype=np.uint8)
    of_palette = _channels(palette)
    for start in range(0, len(every), 4096):
        distances = _channels(every[start : start + 4096])[:, None, :] - of_palette[None, :, :]
        nearest[start : start + 4096] = (distances**2).sum(axis=2).argmin(axis=1)
    return palette, nearest[places.reshape(pixels.shape)]


def _channels(colors: Pixels) -> npt.NDArray[np.int64]:
    return np.stack([colors >> 16 & 0xFF, colors >> 8 & 0xFF, colors & 0xFF], axis=1).astype(np.int64)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
