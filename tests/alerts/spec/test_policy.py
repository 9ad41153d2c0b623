"""The alerting policy: what the shipped one says, and that a mistake in one is named with its line and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tachoscope_alerts.spec import policy
from tachoscope_core.errors import TachoscopeError

SHIPPED = Path(__file__).parents[3] / "alerts" / "policy.yaml"
WINDOW = """maintenance:
  - name: firmware
    owners: [storage]
    severities: [ticket]
    intervals: [{weekdays: [sunday], times: [{start_time: 22:00, end_time: 23:30}]}]
"""


def changed(tmp_path: Path, old: str, new: str) -> Path:
    """Return the shipped policy with one text replaced by another, in a file."""
    text = SHIPPED.read_text()
    assert old in text
    path = tmp_path / "policy.yaml"
    path.write_text(text.replace(old, new, 1))
    return path


def test_each_team_is_paged_by_one_way_and_gets_tickets_by_another() -> None:
    owners = policy.load(SHIPPED).owners

    assert set(owners) == {"training-infrastructure", "gpu-fleet", "storage", "inference-serving", "observability"}
    for owner in owners.values():
        assert owner.contact
        assert owner.receivers("page") != owner.receivers("ticket")


def test_a_page_that_nobody_mitigates_reaches_the_incident_commander_within_the_hour() -> None:
    steps = policy.load(SHIPPED).escalation["page"]

    assert [step.after_minutes for step in steps] == [5, 15, 30, 60]
    assert "incident commander" in steps[-1].who
    assert [step.what for step in policy.load(SHIPPED).escalation["ticket"]] == ["has looked at it by the next business day"]


def test_the_less_of_a_budget_is_left_the_graver_is_what_follows() -> None:
    steps = policy.load(SHIPPED).budget

    assert [step.remaining_below for step in steps] == [0.5, 0.25, 0.0]
    assert [word in step.what for word, step in zip(("weekly", "consent", "reliability"), steps, strict=True)] == [True] * 3


def test_the_shipped_policy_holds_no_secret_and_mutes_nobody() -> None:
    shipped = policy.load(SHIPPED)

    assert not shipped.maintenance
    assert all(
        name.endswith("_file") or name == "url"
        for owner in shipped.owners.values()
        for receiver in (*owner.page, *owner.ticket)
        for name in receiver.settings
    )


def test_hours_of_a_maintenance_window_stay_what_was_written(tmp_path: Path) -> None:
    (window,) = policy.load(changed(tmp_path, "maintenance: []\n", WINDOW)).maintenance

    assert window.intervals[0]["times"] == [{"start_time": "22:00", "end_time": "23:30"}]  # to YAML 22:00 is a number
    assert (window.owners, window.severities) == (("storage",), ("ticket",))


FAULTS = {
    "an unknown way": ('{webhook: {url: "https://tickets.example.com/storage"}}', "{pigeon: {}}", ["pigeon", "webhook"]),
    "nobody told": ('{webhook: {url: "https://tickets.example.com/storage"}}', "{}", ["has no receiver"]),
    "an owner without tickets": ('    ticket: {webhook: {url: "https://tickets.example.com/storage"}}\n', "", ["lacks ticket"]),
    "no address": ("https://tickets.example.com/storage", "tickets", ["'tickets'", "https://host/path"]),
    "an unknown fallback": ("fallback: observability", "fallback: nobody", ["'nobody'", "there are training-infrastructure"]),
    "an unknown key": ("fallback:", "falback:", ["falback", "fallback"]),
    "an owner's name": ("  storage:", "  Storage Team:", ["small letters"]),
    "steps not sorted": ("after_minutes: 30", "after_minutes: 7", ["7", "sort"]),
    "no number": ("after_minutes: 30", "after_minutes: soon", ["soon"]),
    "a part above 1": ("postmortem_above: 0.2", "postmortem_above: 20", ["20", "0.5"]),
    "budget steps not sorted": ("remaining_below: 0.25", "remaining_below: 0.75", ["0.75", "sort"]),
    "a base with a query": (
        "https://explorer.example.com",
        "https://explorer.example.com/?team=a",
        ["with a query or a fragment", "https://host/path"],
    ),
    "a base with a fragment": ("https://runbooks.example.com", "https://wiki.example.com/pages#", ["with a query or a fragment"]),
    "a window for nobody": ("maintenance: []\n", WINDOW.replace("[storage]", "[]"), ["empty list"]),
    "a window at no time": ("maintenance: []\n", WINDOW.split("intervals")[0] + "intervals: []\n", ["mutes nothing"]),
    "a window for an unknown team": ("maintenance: []\n", WINDOW.replace("[storage]", "[stores]"), ["'stores'"]),
    "two windows of a name": ("maintenance: []\n", WINDOW + WINDOW.split("\n", 1)[1], ["'firmware'", "another window"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_is_named_with_its_file_its_line_and_the_way_out(fault: str, tmp_path: Path) -> None:
    old, new, words = FAULTS[fault]
    path = changed(tmp_path, old, new)

    with pytest.raises(TachoscopeError) as raised:
        policy.load(path)

    said = str(raised.value)
    place, _, _ = said.partition(" ")
    line = int(place.removeprefix(f"{path}:").removesuffix(":"))
    begin = SHIPPED.read_text()[: SHIPPED.read_text().index(old)].count("\n") + 1
    assert begin - 3 <= line <= begin + 1 + new.count("\n")
    assert all(word in said for word in words), said
    assert said.endswith(")")


@pytest.mark.parametrize(
    "secret",
    [
        "{pagerduty: {routing_key: hunter2}}",
        "{slack: {api_url: 'https://hooks.example.com/hunter2'}}",
        "{webhook: {url: 'https://me:hunter2@tickets.example.com'}}",
        "{webhook: {url: 'https://tickets.example.com', http_config: {basic_auth: {username: me, password: hunter2}}}}",
        "{webhook: {url: 'https://tickets.example.com', http_config: {authorization: {credentials: hunter2}}}}",
        "{email: {to: a@example.com, from: b@example.com, smarthost: 'mail.example.com:587', auth_password: hunter2}}",
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(secret: str, tmp_path: Path) -> None:
    path = changed(tmp_path, '{webhook: {url: "https://tickets.example.com/storage"}}', secret)

    with pytest.raises(TachoscopeError) as raised:
        policy.load(path)

    assert "hunter2" not in str(raised.value)
    assert "file" in str(raised.value)


@pytest.mark.parametrize("text", ["", "owners: [", "a: 1\n---\nb: 2\n"])
def test_what_is_no_policy_is_an_error_that_names_the_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)

    with pytest.raises(TachoscopeError, match=r"policy\.yaml"):
        policy.load(path)
    with pytest.raises(TachoscopeError, match="cannot be read"):
        policy.load(tmp_path / "absent.yaml")


def test_the_window_that_the_docs_show_can_be_used(tmp_path: Path) -> None:
    docs = (SHIPPED.parents[1] / "docs" / "guides" / "alerting.md").read_text()
    (example,) = [block.split("```")[0] for block in docs.split("```yaml\n")[1:] if block.startswith("maintenance:")]
    (window,) = policy.load(changed(tmp_path, "maintenance: []\n", example)).maintenance

    assert window.intervals[0]["location"] == "Europe/Berlin"
