"""The agent's configuration: every fault at once, and defaults that hold."""

from pathlib import Path

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_node.config import load

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
        "proc: '/nowhere' is no directory",
        "devices.disk: a device filter has both include",
        "devices.gpu: no collector",
        "devices.network: include '(' of a device filter is no regular expression",
        "otlp.endpoint",
        "web_config: /no/such/file is not there",
    ):
        assert fault in text
    assert "agent.yaml: 12 to mend" in text


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
    [("- a\n", "holds list, not keys"), ("a: [", "is not YAML"), ("!!python/object/apply:os.system ['true']", "is not YAML")],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TachoscopeError, match=message):
        load(write(tmp_path, text))


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(write(tmp_path, "")) == load(None)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match=r"could not read .*none\.yaml"):
        load(tmp_path / "none.yaml")
