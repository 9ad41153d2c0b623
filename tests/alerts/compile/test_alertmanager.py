"""The configuration on a real Alertmanager: whom an alert reaches, with which others, what keeps it quiet, what is never lost."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers import REPOSITORY
from processes import free_port, wait_for
from sample_slos import AVAILABILITY, GOODPUT
from tachoscope_alerts.compile import alertmanager, event_alerts
from tachoscope_alerts.spec import policy, slo_files
from tachoscope_alerts.spec.burn_rate_windows import Timing, tiers
from tachoscope_alerts.spec.policy import Maintenance, Policy, Receiver
from tachoscope_cli.drill import prometheus_alertmanager as drill_servers
from tachoscope_cli.drill.webhook_receiver import Receiver as Webhook

SHIPPED = Path(__file__).parents[3] / "alerts" / "policy.yaml"
FAST = Timing(interval=0.25, scrape=1.0, scale=0.001)
SLOS = (AVAILABILITY, GOODPUT, replace(AVAILABILITY, name="chat", by=("model_name", "zone")))
WEEKLY = Maintenance(
    "weekly",
    ("storage",),
    ("ticket",),
    ({"weekdays": ["sunday"], "times": [{"start_time": "02:00", "end_time": "06:00"}], "location": "Europe/Berlin"},),
)

pytestmark = pytest.mark.skipif(
    shutil.which("amtool") is None or shutil.which("prometheus-alertmanager") is None, reason="Alertmanager is not installed"
)


def written(folder: Path, **options: Any) -> Path:
    """Write the shipped policy's configuration, with a weekly window beside it."""
    path = folder / "alertmanager.yml"
    path.write_text(yaml.safe_dump(alertmanager.configuration(replace(policy.load(SHIPPED), maintenance=(WEEKLY,)), **options)))
    return path


def amtool(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["amtool", *words], capture_output=True, text=True)


@pytest.mark.parametrize("options", [{}, {"webhook": "http://127.0.0.1:1/"}, {"timing": FAST}])
def test_amtool_finds_nothing_wrong(options: dict[str, Any], tmp_path: Path) -> None:
    checked = amtool("check-config", str(written(tmp_path, **options)))

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{2 * 5 + 1} receivers" in checked.stdout


TEAMS = ("training-infrastructure", "gpu-fleet", "storage", "inference-serving", "observability")
ROUTES = [
    *[(f"{team}-{severity}", {"severity": severity, "owner": team}) for team in TEAMS for severity in ("page", "ticket")],
    ("dead-mans-switch", {"alertname": "Watchdog", "severity": "none", "owner": "observability"}),
    ("observability-page", {"severity": "page", "owner": "a-team-that-left"}),
    ("observability-page", {"severity": "page"}),
    ("observability-ticket", {"severity": "ticket"}),
    ("observability-ticket", {"severity": "warning", "owner": "storage"}),
    ("observability-ticket", {}),
]


def test_every_severity_of_every_team_has_its_receiver_and_what_nobody_owns_reaches_the_fallback(tmp_path: Path) -> None:
    config = str(written(tmp_path))
    for receiver, labels in ROUTES:
        words = [f"{name}={value}" for name, value in ({"alertname": "A"} | labels).items()]
        tested = amtool("config", "routes", "test", f"--config.file={config}", f"--verify.receivers={receiver}", *words)
        assert tested.returncode == 0, f"{labels}: {tested.stdout}{tested.stderr}"
        wrong = "storage-page" if receiver != "storage-page" else "storage-ticket"
    assert amtool("config", "routes", "test", f"--config.file={config}", f"--verify.receivers={wrong}", *words).returncode != 0


def test_only_the_owners_and_severities_of_a_window_are_muted_by_it() -> None:
    made = alertmanager.configuration(replace(policy.load(SHIPPED), maintenance=(WEEKLY,)))
    muted = {route["receiver"]: route["mute_time_intervals"] for route in routes(made["route"]) if "mute_time_intervals" in route}

    assert muted == {"storage-ticket": ["weekly"]}
    assert [interval["name"] for interval in made["time_intervals"]] == ["weekly"]


@pytest.mark.parametrize("interval", [30.0, 60.0])
def test_a_page_waits_as_long_as_the_documents_say_however_often_rules_are_evaluated(interval: float) -> None:
    made = alertmanager.configuration(policy.load(SHIPPED), timing=Timing(interval=interval))
    waits = {
        route["matchers"][0]: tuple(route[name] for name in ("group_wait", "group_interval", "repeat_interval"))
        for route in made["route"]["routes"]
    }

    assert waits['severity="page"'] == ("30s", "5m", "1h")
    assert waits['severity="ticket"'] == ("2m", "30m", "1d")
    assert waits['alertname="Watchdog"'][1:] == ("1m", "54s")


def routes(route: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield route
    for part in route.get("routes", []):
        yield from routes(part)


def test_a_label_that_has_to_be_equal_is_required_of_both_sides() -> None:
    for rule in alertmanager.configuration(policy.load(SHIPPED))["inhibit_rules"]:
        for label in ("area", "slo") if "slo" in rule["equal"] else ("area", "service"):
            assert f'{label}=~".+"' in rule["source_matchers"]
            assert f'{label}=~".+"' in rule["target_matchers"]


class Site:
    """An HTTP server that keeps what is posted to it, and answers with the statuses that it was given, then with 200."""

    def __init__(self, port: int = 0, statuses: tuple[int, ...] = ()) -> None:
        self.posts: list[tuple[str, str]] = []
        left = list(statuses)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:  # noqa: N805
                body = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
                status = left.pop(0) if left else 200
                if status == 200:
                    self.posts.append((handler.path, body))
                handler.send_response(status)
                handler.end_headers()

            def log_message(handler, *words: Any) -> None:  # noqa: N805
                pass

        self.left = left
        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield
        finally:
            self.server.shutdown()
            self.server.server_close()


@dataclass(frozen=True)
class Place:
    """A running Alertmanager, and who is told: storage's pages go to `absent_port`, where nobody listens, gpu-fleet's to `site`."""

    url: str
    folder: Path
    policy: Policy
    told: Webhook
    site: Site
    absent_port: int

    def post(self, case: str, *alerts: dict[str, str], ends: bool = False) -> None:
        """Post alerts. Each case is a cluster of its own, so that none keeps those of another quiet."""
        end = {"endsAt": datetime.now(UTC).isoformat()} if ends else {}
        texts = {"summary": "12.3 % of steps are late", "description": "Words.", "runbook_url": RUNBOOK, "dashboard_url": DASHBOARD}
        common = {"alertname": "A", "case": case, "cluster": case}
        body = [{"labels": common | alert, "annotations": texts, **end} for alert in alerts]
        request = urllib.request.Request(
            f"{self.url}/api/v2/alerts", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=60).close()

    def inhibitors(self, case: str) -> dict[str, list[str]]:
        """Return by `is` of the alerts of a case, by which others each is kept quiet."""
        query = urllib.parse.urlencode({"filter": f'case="{case}"'})
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts?{query}", timeout=60) as answer:
            found = json.load(answer)
        names = {alert["fingerprint"]: alert["labels"]["is"] for alert in found}
        return {alert["labels"]["is"]: [names[one] for one in alert["status"]["inhibitedBy"]] for alert in found}

    def came(self, case: str, **labels: str) -> list[Any]:
        return [one for one in self.told.arrivals() if {"case": case, **labels}.items() <= one.labels.items()]

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f'{name}{{integration="webhook"'))


RUNBOOK, DASHBOARD = "https://runbooks.example.com/A.md", "https://grafana.example.com/d/a"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder, site, absent_port = tmp_path_factory.mktemp("alertmanager"), Site(), free_port()
    with Webhook() as told, site.open():
        made = with_addresses(folder, told.url, site.url, f"http://127.0.0.1:{absent_port}/")
        with drill_servers.alertmanager(folder, alertmanager.configuration(made, SLOS, timing=FAST)) as url:
            yield Place(url, folder, made, told, site, absent_port)


def with_addresses(folder: Path, told: str, site: str, absent: str) -> Policy:
    shipped = policy.load(SHIPPED)
    (folder / "key").write_text("0" * 32)
    (folder / "slack").write_text(f"{site}/slack")
    webhook = (Receiver("webhook", {"url": told}),)
    owners = {name: replace(owner, page=webhook, ticket=webhook) for name, owner in shipped.owners.items()}
    messengers = (
        Receiver("pagerduty", {"routing_key_file": str(folder / "key"), "url": f"{site}/pagerduty"}),
        Receiver("slack", {"api_url_file": str(folder / "slack")}),
    )
    owners["gpu-fleet"] = replace(owners["gpu-fleet"], page=messengers)
    owners["storage"] = replace(owners["storage"], page=(Receiver("webhook", {"url": absent}),))
    always = Maintenance("always", ("storage",), ("ticket",), ({"weekdays": ["sunday:saturday"]},))
    past = Maintenance("past", ("gpu-fleet",), ("ticket",), ({"years": ["2001"]},))
    return replace(shipped, owners=owners, dead_mans_switch=webhook, maintenance=(always, past))


def burn(is_: str, severity: str, **labels: str) -> dict[str, str]:
    """An alert of an objective of training; a label that is given as "" is left out."""
    all_labels = {"is": is_, "severity": severity, "owner": "observability", "slo": "goodput", "area": "training"} | labels
    return {name: value for name, value in all_labels.items() if value}


def test_pages_to_a_receiver_that_was_down_for_longer_than_one_try_arrive_when_it_is_back(place: Place) -> None:
    place.post("down", burn("first", "page", owner="storage"), burn("second", "page", owner="storage", slo="recovery"))
    # One try of a group ends, with all its retries, after the group's interval, which Alertmanager takes for at least 10 s.
    wait_for(lambda: place.metric("alertmanager_notifications_failed_total") >= 2, 300)
    site = Site(place.absent_port, (503, 503, 503))
    with site.open():
        wait_for(lambda: len(site.posts) >= 2, 300)

    told = [alert["labels"]["is"] for _, body in site.posts for alert in json.loads(body)["alerts"]]
    assert {"first", "second"} <= set(told)
    assert not site.left  # it did refuse


def test_a_page_keeps_the_ticket_of_its_objective_quiet_and_nothing_else(place: Place) -> None:
    place.post(
        "objective",
        burn("page", "page", slo="o"),
        burn("same", "ticket", slo="o"),
        burn("other objective", "ticket", slo="p"),
        burn("other area", "ticket", slo="o", area="inference"),
        burn("no objective", "ticket", slo=""),
        burn("other page", "page", slo="o", alertname="B"),
    )

    found = wait_for(lambda: (found := place.inhibitors("objective"))["same"] and found)
    assert set(found.pop("same")) <= {"page", "other page"}
    assert found == {"page": [], "other objective": [], "other area": [], "no objective": [], "other page": []}


def test_a_page_without_an_objective_keeps_nothing_quiet(place: Place) -> None:
    place.post(
        "without",
        burn("page", "page", slo="", area=""),
        burn("page with area", "page", slo=""),
        burn("bare ticket", "ticket", slo="", area=""),
        burn("ticket with area", "ticket", slo=""),
        burn("control page", "page", slo="w"),
        burn("control", "ticket", slo="w"),
    )

    found = wait_for(lambda: (found := place.inhibitors("without"))["control"] and found)
    assert {name for name, by in found.items() if by} == {"control"}


def test_a_ticket_never_keeps_a_page_quiet(place: Place) -> None:
    place.post("order", burn("ticket", "ticket", slo="t"), burn("page", "page", slo="t"))

    found = wait_for(lambda: (found := place.inhibitors("order"))["ticket"] and found)
    assert found == {"ticket": ["page"], "page": []}


def test_a_page_of_one_service_leaves_the_tickets_of_another_alone(place: Place) -> None:
    place.post(
        "services",
        burn("page", "page", slo="ttft", area="inference", service="chat", model="m"),
        burn("same", "ticket", slo="ttft", area="inference", service="chat", model="m"),
        burn("other model", "ticket", slo="ttft", area="inference", service="chat", model="n"),
        burn("other service", "ticket", slo="ttft", area="inference", service="code", model="m"),
    )

    found = wait_for(lambda: (found := place.inhibitors("services"))["same"] and found)
    assert found == {"page": [], "same": ["page"], "other model": [], "other service": []}


def test_a_page_leaves_alone_the_ticket_of_another_value_of_whatever_label_an_objective_is_kept_by(place: Place) -> None:
    of_chat = {"slo": "chat", "area": "inference", "zone": "z"}
    place.post(
        "labels",
        burn("page", "page", **of_chat, model_name="a"),
        burn("same", "ticket", **of_chat, model_name="a"),
        burn("other model", "ticket", **of_chat, model_name="b"),
        burn("other zone", "ticket", **(of_chat | {"zone": "y"}), model_name="a"),
        burn("training page", "page"),
        burn("training", "ticket"),
    )

    found = wait_for(lambda: (found := place.inhibitors("labels"))["same"] and found["training"] and found)
    assert {name: by for name, by in found.items() if by} == {"same": ["page"], "training": ["training page"]}


def test_a_service_that_is_down_is_one_page_and_those_of_its_budgets_are_quiet(place: Place) -> None:
    of_chat = {"area": "inference", "service": "down-chat"}
    down = burn("down", "page", alertname="InferenceDown", slo="availability", **of_chat)
    place.post(
        "service down",
        down,
        burn("its page", "page", slo="ttft", long="1h", **of_chat, model="m"),
        burn("its ticket", "ticket", slo="itl", long="3d", **of_chat, model="m"),
        burn("no burn", "page", slo="queue", **of_chat),
        burn("another service", "page", slo="ttft", long="1h", area="inference", service="down-code"),
        burn("a training", "page", slo="ttft", long="1h"),
    )

    found = wait_for(lambda: (found := place.inhibitors("service down"))["its page"] and found["its ticket"] and found)
    assert {name for name, by in found.items() if by == ["down"]} == {"its page", "its ticket"}
    assert [name for name, by in found.items() if by and by != ["down"]] == []


def test_one_outage_is_one_page_and_another_objective_is_another(place: Place) -> None:
    tiers = [burn(f"tier {long}", "page", slo="g", long=long) for long in ("1h", "6h")]
    place.post("group", *tiers, burn("hard down", "page", slo="g", alertname="TrainingNoProgress"), burn("other", "page", slo="h"))

    first = wait_for(lambda: len(came := {one.labels["is"]: one for one in reversed(place.came("group"))}) == 4 and came)
    together = {first[name].time for name in ("tier 1h", "tier 6h", "hard down")}
    assert len(together) == 1
    assert first["other"].time not in together
    assert {one.receiver for one in first.values()} == {"observability-page"}


def test_each_incident_has_a_key_of_its_own_and_is_told_without_waiting_for_another(place: Place) -> None:
    """A second service that fails while somebody works on the first would only update their incident if it shared its group."""
    chat = {"slo": "k", "area": "inference", "service": "chat", "cluster": "a", "workload_namespace": "x"}
    job = {"slo": "k", "training_job": "resnet", "cluster": "a", "workload_namespace": "x"}
    others = [
        chat | {"service": "chatapi"},
        chat | {"cluster": "b"},
        chat | {"workload_namespace": "y"},
        chat | {"team": "vision"},
        job,
        job | {"training_job": "bert"},
        job | {"cluster": "b"},
    ]
    place.post("key", burn("first", "page", **chat))
    first = wait_for(lambda: place.came("key"))[0]
    place.post("key", *(burn(str(number), "page", **labels) for number, labels in enumerate(others)))
    wait_for(lambda: len({one.labels["is"] for one in place.came("key")}) == 1 + len(others))

    keys = {one.labels["is"]: one.group for one in place.came("key")}
    assert len(set(keys.values())) == len(keys)
    place.post("key", burn("model n", "page", **chat, model="n"))
    again = wait_for(lambda: place.came("key", model="n"))[0]
    assert again.group == first.group, "another model of the service is the same incident"


def pages() -> list[dict[str, str]]:
    """Return the labels that each alert that pages has whatever it is of."""
    of_events = [event for event in event_alerts.load(REPOSITORY / "alerts" / "events") if event.severity == "page"]
    of_slos = [
        slo for slo in slo_files.load([REPOSITORY / "alerts" / "slos"]) if any(tier.severity == "page" for tier in tiers(slo))
    ]
    return [
        *({"alertname": one.alert, "slo": one.slo, "area": one.area, "owner": one.owner} for one in of_events),
        *({"alertname": one.alert, "slo": one.name, "area": one.area, "owner": one.owner} for one in of_slos),
    ]


def test_each_alert_that_pages_is_told_once_of_each_cluster_and_namespace_that_it_fires_in(place: Place) -> None:
    """That none fires for a healthy twin is in `test_twins.py`. Here what has the same name in two places fails in both at once."""
    found = pages()
    assert len(found) >= 13
    failing = [{"cluster": "a", "workload_namespace": "x"}, {"cluster": "b", "workload_namespace": "x"}]
    posted = [
        burn(f"{number} in {where['cluster']}", "page", **labels | where | {"service": f"of-{number}", "owner": "observability"})
        for number, labels in enumerate(found)
        for where in failing
    ]
    place.post("everywhere", *posted)
    came = wait_for(lambda: len(came := place.came("everywhere")) >= len(posted) and came)

    assert sorted(one.labels["is"] for one in came) == sorted(labels["is"] for labels in posted)
    assert all({"cluster", "workload_namespace"} <= one.labels.keys() for one in came)
    assert len({one.group for one in came}) == len(posted)


def test_tickets_are_grouped_by_what_happened(place: Place) -> None:
    lost = [burn(f"gpu {number}", "ticket", slo="", alertname="GpuLost", owner="training-infrastructure") for number in range(3)]
    place.post("tickets", *lost, burn("disk", "ticket", slo="", alertname="DiskFull", owner="training-infrastructure"))

    first = wait_for(lambda: len(came := {one.labels["is"]: one for one in reversed(place.came("tickets"))}) == 4 and came)
    assert len({first[f"gpu {number}"].time for number in range(3)}) == 1
    assert first["disk"].time != first["gpu 0"].time


def test_who_was_told_that_it_burns_is_told_that_it_ended(place: Place) -> None:
    alert = burn("it", "page", slo="e", owner="inference-serving")
    place.post("end", alert)
    wait_for(lambda: place.came("end"))
    place.post("end", alert, ends=True)

    last = wait_for(lambda: place.came("end")[-1].status == "resolved" and place.came("end")[-1])
    assert last.receiver == "inference-serving-page"


def test_the_dead_mans_switch_is_told_again_and_again(place: Place) -> None:
    place.post("watchdog", {"alertname": "Watchdog", "severity": "none", "is": "it"})

    came = wait_for(lambda: len(place.came("watchdog")) >= 3 and place.came("watchdog"))
    assert {(one.receiver, one.status) for one in came} == {("dead-mans-switch", "firing")}


def test_a_message_carries_summary_runbook_and_dashboard(place: Place) -> None:
    place.post("message", burn("it", "page", owner="gpu-fleet"))

    bodies = wait_for(lambda: len(by_path := dict(place.site.posts)) == 2 and by_path)
    assert set(bodies) == {"/pagerduty", "/slack"}
    for body in bodies.values():
        text = body.encode().decode("unicode_escape")
        assert all(part in text for part in ("12.3 % of steps are late", RUNBOOK, DASHBOARD)), text
    assert json.loads(bodies["/pagerduty"])["payload"]["severity"] == "critical"


def test_maintenance_mutes_its_owner_while_it_lasts_and_what_still_burns_is_told_at_its_end(place: Place) -> None:
    muted, heard = (burn(owner, "ticket", slo="", alertname=f"{owner} full", owner=owner) for owner in ("storage", "gpu-fleet"))
    place.post("mute", muted, heard)
    wait_for(lambda: place.came("mute", owner="gpu-fleet"))
    place.post("mute", burn("later", "ticket", slo="", alertname="Later"))
    wait_for(lambda: place.came("mute", alertname="Later"))
    assert not place.came("mute", owner="storage")

    after = alertmanager.configuration(replace(place.policy, maintenance=()), timing=FAST)
    (place.folder / "alertmanager.yml").write_text(yaml.safe_dump(after))
    urllib.request.urlopen(f"{place.url}/-/reload", data=b"", timeout=60).close()
    (came,) = wait_for(lambda: place.came("mute", owner="storage"))
    assert came.receiver == "storage-ticket"
