"""The agent's configuration: every fault at once, and defaults that hold."""

import socket
from pathlib import Path

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_node.config.checks import warnings
from tachoscope_node.config.load import load
from tachoscope_node.config.settings import Gpu

BAD = """
port: 123456
tick_secnds: 2
flush: {seconds: -1, bites: 3}
limits: {jobs: many}
node: "bad name!"
proc: /nowhere
devices: {disk: {include: "sd.", exclude: "loop"}, gpu: {include: x}, network: {include: "("}}
otlp: {endpoint: "ftp://collector"}
web_config: /no/such/file
spool: here/spool
store: s4://bucket/x
gpu:
  {enabled: perhaps, expected: -1, interval_seconds: 0, kernel_log: kmsg, dcgm_url: "localhost:9400",
   pod_resources: a.sock, what: 1}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    return path


def test_all_faults_are_named_at_once_with_key_and_value(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError) as raised:
        load(write(tmp_path, BAD))
    text = str(raised.value)

    for fault in (
        "port: 123456 is not between",
        "tick_secnds: no such key; there are spool, store",
        "flush.seconds: -1",
        "flush.bites: no such key",
        "limits.jobs: 'many'",
        "node: 'bad name!'",
        "proc: '/nowhere' is not a directory",
        "devices.disk: a device filter has both include",
        "devices.gpu: no collector",
        "devices.network: include '(' of a device filter is not a regular expression",
        "otlp.endpoint",
        "web_config: /no/such/file does not exist",
        "spool: 'here/spool' is a relative path",
        "store: could not open store 's4://bucket/x': Protocol not known: s4",
        "gpu.enabled: 'perhaps': must be one of auto, on, off",
        "gpu.expected: -1 is not between 0 and",
        "gpu.interval_seconds: 0.0 is not between 0.2 and",
        "gpu.kernel_log: 'kmsg' is a relative path",
        "gpu.dcgm_url: 'localhost:9400' is not an http:// or https:// URL",
        "gpu.pod_resources: 'a.sock' is a relative path",
        "gpu.what: no such key; there are enabled, expected, kernel_log, dcgm_url, dcgm_names, pod_resources, interval_seconds",
    ):
        assert fault in text
    assert "agent.yaml: 21 to fix" in text


def test_what_the_command_line_says_of_a_part_leaves_the_rest_of_it_as_in_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "gpu: {expected: 8, dcgm_names: false}")

    assert load(path, **{"gpu.dcgm_names": True}).gpu == Gpu(expected=8, dcgm_names=True)
    assert load(path, **{"gpu.dcgm_names": None}).gpu == Gpu(expected=8)
    assert load(None, **{"gpu.dcgm_names": True}).gpu.dcgm_names
    with pytest.raises(TachoscopeError, match="gpu: str where a set of keys and values belongs"):
        load(write(tmp_path, "gpu: all"), **{"gpu.dcgm_names": True})


def test_a_password_in_the_url_of_a_dcgm_exporter_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match="gpu.dcgm_url: .not shown.: has a user in it") as raised:
        load(write(tmp_path, "gpu: {dcgm_url: 'http://me:secret-23@127.0.0.1:9400/metrics'}"))

    assert "secret-23" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://", "names no host"),
        ("http:///metrics", "names no host"),
        ("https://:9400/metrics", "names no host"),
        ("http://127.0.0.1:99999/m", "is not a URL .Port out of range 0-65535"),
        ("http://127.0.0.1:0/m", "has a port that is not from 1 to 65535"),
        ("http://127.0.0.1:metrics", "is not a URL .Port could not be cast"),
        ("http://[::1/metrics", "is not a URL .Invalid IPv6"),
        ("http://127.0.0.1:9400/a b", "has a space or a character"),
        ("http://127.0.0.1:9400/\u00fc", "has a space or a character"),
    ],
)
def test_an_address_of_a_dcgm_exporter_that_nobody_can_ask_is_a_fault(tmp_path: Path, url: str, fault: str) -> None:
    with pytest.raises(TachoscopeError, match=f"gpu.dcgm_url: '.*' {fault}.*http://127.0.0.1:9400/metrics is"):
        load(write(tmp_path, f'gpu: {{dcgm_url: "{url}"}}'))


@pytest.mark.parametrize(
    "url", ["http://localhost", "https://exporter.gpu-operator.svc:9400/metrics?a=b", "http://[::1]:9400/metrics"]
)
def test_an_address_of_a_dcgm_exporter_that_can_be_asked_is_taken(tmp_path: Path, url: str) -> None:
    assert load(write(tmp_path, f'gpu: {{dcgm_url: "{url}"}}')).gpu.dcgm_url == url


def test_a_look_finds_a_kernel_log_or_socket_of_gpus_that_is_something_else_and_a_start_lets_it_come_right(tmp_path: Path) -> None:
    file = write(tmp_path, f"gpu: {{kernel_log: {tmp_path}, pod_resources: {tmp_path}}}")
    with pytest.raises(TachoscopeError) as raised:
        load(file, look=True)

    assert f"gpu.kernel_log: '{tmp_path}' is a directory: name the kernel log, /dev/kmsg" in str(raised.value)
    assert f"gpu.pod_resources: '{tmp_path}' is not a socket: name the kubelet's" in str(raised.value)
    assert "2 to fix" in str(raised.value)
    assert load(file).gpu.kernel_log == str(tmp_path)
    with pytest.raises(TachoscopeError, match=r"gpu.pod_resources: '.*agent.yaml' is not a socket"):
        load(write(tmp_path, f"gpu: {{pod_resources: {file}}}"), look=True)


def test_a_look_takes_a_socket_and_a_kernel_log_that_are_there_and_those_that_are_not_there_yet(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(tmp_path / "kubelet.sock"))
        there = write(tmp_path, f"gpu: {{kernel_log: /dev/null, pod_resources: {tmp_path}/kubelet.sock}}")
        assert load(there, look=True).gpu.kernel_log == "/dev/null"
    load(write(tmp_path, f"gpu: {{kernel_log: {tmp_path}/none, pod_resources: {tmp_path}/none.sock}}"), look=True)


def test_a_file_as_the_kernel_log_is_allowed_with_a_warning_and_a_device_without(tmp_path: Path) -> None:
    (tmp_path / "kern.log").write_text("Nov 21 node-1 kernel: NVRM: Xid (PCI:0000:01:00): 79\n")

    (warning,) = warnings(load(write(tmp_path, f"gpu: {{kernel_log: {tmp_path}/kern.log}}")))
    assert warning.startswith(f"gpu.kernel_log '{tmp_path}/kern.log' is a file: only lines in the format of /dev/kmsg count")
    assert warnings(load(write(tmp_path, "gpu: {kernel_log: /dev/null}"))) == []


def test_names_of_an_exporter_that_is_there_itself_are_allowed_with_a_warning(tmp_path: Path) -> None:
    names, url = "gpu: {dcgm_names: true}", "gpu: {dcgm_names: true, dcgm_url: 'http://127.0.0.1:9400/metrics'}"

    assert warnings(load(write(tmp_path, names))) == []
    (warning,) = warnings(load(write(tmp_path, url)))
    assert warning.startswith("gpu.dcgm_names beside the dcgm-exporter http://127.0.0.1:9400/metrics: ")


def test_a_secret_of_the_wrong_form_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError) as raised:
        load(write(tmp_path, 'otlp: {endpoint: "http://a", headers: "Authorization: secret-23"}'))

    assert "otlp.headers: (not shown)" in str(raised.value)


def test_every_key_has_a_default_and_the_command_line_wins(tmp_path: Path) -> None:
    config = load(write(tmp_path, "port: 1\nstore: /a\n"), port=2, store=None)

    assert (config.port, config.store_url, config.address) == (2, "/a", "127.0.0.1")
    assert load(None).tick_seconds == 1.0


def test_records_go_every_few_seconds_to_a_directory_and_after_5_minutes_to_an_object_store() -> None:
    assert load(None, store="/a").flush_seconds == 5.0
    assert load(None, store="s3://bucket/a").flush_seconds == 300.0
    assert load(None, store="s3://bucket/a", flush={"seconds": 7}).flush_seconds == 7.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "holds list, not keys"),
        ("a: [", "is not valid YAML"),
        ("!!python/object/apply:os.system ['true']", "is not valid YAML"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TachoscopeError, match=message):
        load(write(tmp_path, text))


@pytest.mark.parametrize(
    ("written", "meant"), [("on", "on"), ("off", "off"), ('"on"', "on"), ("'off'", "off"), ("auto", "auto"), ("true", "on")]
)
def test_on_and_off_mean_the_same_with_quotes_and_without(tmp_path: Path, written: str, meant: str) -> None:
    assert load(write(tmp_path, f"gpu: {{enabled: {written}}}")).gpu.nvml == meant


def test_a_section_whose_keys_are_all_commented_out_is_its_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, "gpu:\n  # expected: 8\nflush:\nlimits:\ndevices:\notlp:\n")

    assert load(path) == load(None)
    assert load(path, **{"gpu.dcgm_names": True}).gpu == Gpu(dcgm_names=True)
    with pytest.raises(TachoscopeError, match="store: None: Expected `str`, got `null`"):
        load(write(tmp_path, "store:\n"))


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(write(tmp_path, "")) == load(None)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match=r"none\.yaml cannot be read"):
        load(tmp_path / "none.yaml")


def test_a_key_that_stands_there_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match=r"agent\.yaml:3: a key is defined twice"):
        load(write(tmp_path, "spool: /a\nport: 1\nspool: /b\n"))


def test_a_file_where_a_directory_belongs_is_a_fault_of_a_look_and_lets_a_start_wait_for_it_to_go(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = write(tmp_path, f"store: {tmp_path}/file/store\nstate: {tmp_path}/file\nspool: {tmp_path}/not/yet/there\n")
    with pytest.raises(TachoscopeError) as raised:
        load(file, look=True)

    assert f"store: '{tmp_path}/file/store' cannot be a directory: {tmp_path}/file is a file" in str(raised.value)
    assert f"state: '{tmp_path}/file' cannot be a directory: {tmp_path}/file is a file" in str(raised.value)
    assert "2 to fix" in str(raised.value) and "line 2: state: " in str(raised.value)
    assert load(file).store == f"{tmp_path}/file/store"


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        *[(address, False) for address in ("127.0.0.1", "127.1.2.3", "::1", "localhost")],
        *[(address, True) for address in ("0.0.0.0", "::", "10.0.0.7", "node-1", "")],
    ],
)
def test_an_address_that_others_reach_without_a_password_is_a_warning(tmp_path: Path, address: str, reached: bool) -> None:
    (tmp_path / "web.yaml").write_text("")

    assert bool(warnings(load(None, address=address))) == reached
    assert warnings(load(None, address=address, web_config=str(tmp_path / "web.yaml"))) == []
