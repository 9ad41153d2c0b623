"""Notices of the three cloud providers, from a fake metadata service that speaks their protocols."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_metadata import FakeMetadata, fake_metadata
from processes import wait_for
from tachoscope.preemption.notice_file import Notice
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.training import PREEMPTION_NOTICE
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_node.collectors.preemption import Metadata, MetadataError, PreemptionCollector, Provider
from tachoscope_node.config.load import load


@pytest.fixture
def fake() -> Iterator[FakeMetadata]:
    with fake_metadata() as service:
        yield service


def preempt(fake: FakeMetadata, *machines: str, kind: str = "Preempt") -> None:
    fake.action = {"action": "terminate", "time": "2017-09-18T08:22:00Z"}
    fake.preempted = True
    fake.events = [
        {
            "EventId": "f020ba2e-3bc0-4c40-a10b-86575a9eabd5",
            "EventStatus": "Scheduled",
            "EventType": kind,
            "ResourceType": "VirtualMachine",
            "Resources": list(machines),
            "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
            "Description": "Virtual machine is being preempted",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
    ]


@pytest.mark.parametrize(("provider", "deadline"), [("aws", 1505722920.0), ("gcp", 0.0), ("azure", 1474309787.0)])
def test_a_notice_is_found_with_the_time_that_the_provider_says(fake: FakeMetadata, provider: Provider, deadline: float) -> None:
    metadata = Metadata(provider, fake.url, unix_clock=lambda: 1.4e9)
    assert metadata.notice() is None
    preempt(fake, "vm-0", "vm-1")

    assert metadata.notice() == Notice(provider, 1.4e9, deadline)


def test_a_token_of_aws_is_kept_and_renewed_when_it_ran_out(fake: FakeMetadata) -> None:
    metadata = Metadata("aws", fake.url)
    for _ in range(3):
        assert metadata.notice() is None
    assert fake.asked.count("PUT /latest/api/token") == 1
    fake.tokens.clear()
    assert metadata.notice() is None

    assert fake.asked.count("PUT /latest/api/token") == 2


@pytest.mark.parametrize(("machine", "kind"), [("vm-1", "Preempt"), ("vm-0", "Reboot")])
def test_what_comes_to_another_machine_or_is_no_preemption_is_none_of_ours(fake: FakeMetadata, machine: str, kind: str) -> None:
    preempt(fake, machine, kind=kind)

    assert Metadata("azure", fake.url).notice() is None


@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
def test_a_service_that_says_something_else_or_is_not_there_is_no_all_clear(fake: FakeMetadata, provider: Provider) -> None:
    fake.broken = True
    with pytest.raises(MetadataError, match="answers 500"):
        Metadata(provider, fake.url).notice()
    with pytest.raises(MetadataError, match="Connection refused"):
        Metadata(provider, "http://127.0.0.1:1").notice()


def test_the_collector_shows_what_holds_and_nothing_while_it_cannot_ask(fake: FakeMetadata) -> None:
    """What it says of one look that took too long, on a crowded machine, is waited out as well."""
    collector = PreemptionCollector("gcp", url=fake.url, interval_seconds=0.02)

    def shown() -> float:
        try:
            (family,) = collector.collect()
        except (NoDataError, MetadataError) as error:
            raise ValueError(f"not asked yet, or in vain: {error}") from None
        assert family.metric is PREEMPTION_NOTICE
        ((labels, point),) = family.points
        assert labels == ("gcp",)
        assert isinstance(point, float)
        return point

    def fails() -> bool:
        try:
            collector.collect()
        except MetadataError:
            return True
        return False

    assert wait_for(lambda: shown() == 0.0)
    fake.preempted = True
    assert wait_for(lambda: shown() == 1.0)
    first = collector.current
    fake.broken = True
    assert wait_for(fails)
    assert collector.current is first, "a service that fails takes nothing back"
    fake.broken = fake.preempted = False
    assert wait_for(lambda: shown() == 0.0)
    assert collector.current is None
    collector.close()


def test_the_configuration_names_the_provider_and_off_is_off_as_yaml_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("preemption: {provider: off}\n")
    assert load(path).preemption.provider in {"off", False}
    path.write_text("preemption: {provider: aws, interval_seconds: 2}\n")
    assert load(path).preemption.provider == "aws"
    path.write_text("preemption: {provider: on, interval_seconds: 0, url: 'ftp://x'}\n")
    with pytest.raises(TachoscopeError) as raised:
        load(path)

    for fault in ("preemption.provider: True", "preemption.interval_seconds: 0.0", "preemption.url: 'ftp://x'"):
        assert fault in str(raised.value)
