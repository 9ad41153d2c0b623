"""A fake dcgm-exporter: a real HTTP server on the loopback, with pages in its form and every fault that a server can have.

The form: https://github.com/NVIDIA/dcgm-exporter/blob/d5e5f51/internal/pkg/rendermetrics/render_metrics.go
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

from tachoscope_core.metrics.dcgm import DCGM_BY_NAME

PAGES = Path(__file__).with_name("dcgm_pages")


def recorded(name: str) -> str:
    """Return a page of `dcgm_pages`."""
    return (PAGES / f"{name}.txt").read_text()


@dataclass(frozen=True)
class Line:
    """A GPU, or an instance of one, as a page's lines have it. extra: labels that come after the others, as the pod's do."""

    gpu: int
    values: Mapping[str, float | str]
    instance: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)
    model: str = "NVIDIA H100 80GB HBM3"
    hostname: str = "hostname"

    def sample(self, name: str) -> str:
        labels = {
            "gpu": str(self.gpu),
            "UUID": uuid(self.gpu),
            "pci_bus_id": f"00000000:{self.gpu:02X}:00.0",
            "device": f"nvidia{self.gpu}",
            "modelName": self.model,
            **({"GPU_I_PROFILE": "1g.10gb", "GPU_I_ID": self.instance} if self.instance else {}),
            self.hostname: "node-1",
            "DCGM_FI_DRIVER_VERSION": "550.90.07",
            **self.extra,
        }
        if name == "DCGM_FI_DEV_XID_ERRORS":
            labels |= {"err_code": str(self.values[name]), "err_msg": "Page fault {31}, see log"}
        pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
        return f"{name}{{{pairs}}} {self.values[name]}\n"


def uuid(gpu: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{gpu:012d}"


def page(lines: Iterable[Line]) -> str:
    """Return a page: each field's HELP and TYPE, then its samples."""
    lines, text = list(lines), ""
    for name in dict.fromkeys(name for line in lines for name in line.values):
        kind = DCGM_BY_NAME[name].type if name in DCGM_BY_NAME else "gauge"
        text += f"# HELP {name} What it is (in its unit).\n# TYPE {name} {kind}\n"
        text += "".join(line.sample(name) for line in lines if name in line.values)
    return text


class FakeDcgmExporter:
    """What the server answers: `page`, unless `fault` says otherwise.

    Attributes:
        fault: one of FAULTS, or nothing. paths: what it was asked for. bodies: what was sent to it with POST.
    """

    FAULTS = (
        "hang",
        "drip",
        "drip_head",
        "endless",
        "longer_than_said",
        "break_off",
        "html",
        "redirect",
        "error",
        "gzip",
        "no_http",
    )

    def __init__(self) -> None:
        self.page = ""
        self.fault = ""
        self.paths: list[str] = []
        self.bodies: list[str] = []
        self.url = ""
        self.stopping = Event()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.paths.append(handler.path)
        send = handler.wfile.write
        if self.fault in ("", "drip", "break_off"):
            self._send_page(handler)
        elif self.fault == "hang":
            self.stopping.wait(60.0)
        elif self.fault == "drip_head":
            send(b"HTTP/1.1 200 OK\r\nX-Long: ")
            self._drip(handler, b"x" * 10_000)
        elif self.fault == "endless":
            send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
            with contextlib.suppress(OSError):
                while not self.stopping.is_set():
                    send(b"DCGM_FI_DEV_GPU_UTIL{} 1\n" * 10_000)
        elif self.fault == "longer_than_said":
            body = self.page.encode()
            send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body) + 100, body))
        elif self.fault == "html":
            self._whole(handler, 200, b"<html><body>Grafana</body></html>\n", "text/html")
        elif self.fault == "redirect":
            send(b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % f"{self.url}elsewhere".encode())
        elif self.fault == "error":
            self._whole(handler, 500, b"internal server error\n", "text/plain")
        elif self.fault == "gzip":
            send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\n")
        elif self.fault == "no_http":
            send(b"SSH-2.0-OpenSSH_9.2\r\n")

    def _send_page(self, handler: BaseHTTPRequestHandler) -> None:
        """Send in chunks, as Go's server does with pages that are not small."""
        body = self.page.encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for start in range(0, len(body), 4096):
            part = body[start : start + 4096]
            chunk = b"%x\r\n%s\r\n" % (len(part), part)
            if self.fault == "drip":
                self._drip(handler, chunk)
            elif self.fault == "break_off" and start:
                handler.wfile.write(chunk[:100])
                return
            else:
                handler.wfile.write(chunk)
        handler.wfile.write(b"0\r\n\r\n")

    def _drip(self, handler: BaseHTTPRequestHandler, data: bytes) -> None:
        with contextlib.suppress(OSError):
            for position in range(len(data)):
                handler.wfile.write(data[position : position + 1])
                if self.stopping.wait(0.05):
                    return

    @staticmethod
    def _whole(handler: BaseHTTPRequestHandler, status: int, body: bytes, kind: str) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


@contextlib.contextmanager
def fake_dcgm_exporter(text: str = "", tls: tuple[Path, Path] | None = None) -> Iterator[FakeDcgmExporter]:
    """Serve for the length of the block. tls: files of the certificate and its key."""
    fake = FakeDcgmExporter()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.close_connection = True
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                fake.answer(self)

        def do_POST(self) -> None:
            fake.bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    fake.page, fake.url = text, f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}/metrics"
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()
