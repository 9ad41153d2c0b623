"""The inference board: its colours and thresholds, and what its expressions say of services whose state is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from planted import POLICY, RULES, colors, column, made, panels, steps, written, wrong
from tachoscope_alerts.spec import files, slo_files
from tachoscope_alerts.spec.slo import AtMost, Slo
from tachoscope_core.metrics.serving import DIRECTIONS, ENGINE_STATES, OUTCOMES, REQUEST_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.inference import board as inference
from tachoscope_dashboards.parts import slo_objectives

BOARD = made(inference.board(POLICY))
PANELS, WRITTEN = panels(BOARD), written(BOARD)
CHAT, SEARCH = 'service="chat",model="llama"', 'service="search",model="bert"'
CHAT_KEY, SEARCH_KEY = '{model="llama",service="chat"}', '{model="bert",service="search"}'


def buckets(metric: str, of: str, by_bound: dict[str, int]) -> dict[str, str]:
    """Return series of a histogram: how many events each bucket gains in 30 s."""
    return {f'{metric}_bucket{{{of},le="{bound}"}}': f"0+{gained}x200" for bound, gained in by_bound.items()}


def test_each_outcome_has_a_colour_of_its_own() -> None:
    found = colors(PANELS["Requests by outcome"])

    assert found.keys() == set(OUTCOMES)
    assert len(set(found.values())) == len(OUTCOMES)
    assert (found["ok"], found["server_error"]) == (palette.OK, palette.BAD)


@pytest.mark.parametrize(
    ("title", "states"), [("Where the time of requests goes", REQUEST_STATES), ("Where the time of engines goes", ENGINE_STATES)]
)
def test_each_state_of_a_ledger_has_the_colour_that_it_has_everywhere(title: str, states: tuple[str, ...]) -> None:
    assert colors(PANELS[title]) == {state: palette.STATE_COLORS[state] for state in states}


def test_tokens_have_a_colour_for_each_direction() -> None:
    assert colors(PANELS["Tokens a second"]).keys() == set(DIRECTIONS)


@pytest.fixture
def other_promises(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Objectives with half the bounds and other targets than those in alerts/slos."""
    loaded = slo_files.load([files.path_of("slos")])
    monkeypatch.setattr(slo_files, "load", lambda _: [_other(slo) for slo in loaded])
    slo_objectives._read.cache_clear()
    yield
    slo_objectives._read.cache_clear()


def _other(slo: Slo) -> Slo:
    indicator = slo.indicator
    return replace(
        slo, target=0.875, indicator=replace(indicator, bound=indicator.bound / 2) if isinstance(indicator, AtMost) else indicator
    )


@pytest.mark.usefixtures("other_promises")
def test_thresholds_follow_the_objectives() -> None:
    found = panels(made(inference.board(POLICY)))

    assert [at for at, _ in steps(found["Time to the first token, quantiles"])] == [None, 0.25, 1.25]
    assert [at for at, _ in steps(found["Time in the queue"])] == [None, 0.25]
    assert [at for at, _ in steps(found["Time from token to token"])] == [None, 0.05]
    for title in ("Answered", "All of it together", "Availability", "Requests that met all objectives"):
        assert steps(found[title]) == [(None, palette.BAD), (0.875, palette.OK)]
    table = found["By model"]
    assert [column(table, title)["thresholds"]["steps"][-1]["value"] for title in ("First token, p95", "Failed")] == [0.25, 0.125]


def test_failures_count_as_the_objective_counts_them(tmp_path: Path) -> None:
    planted = {
        f'tachoscope_requests_total{{{CHAT},outcome="ok"}}': "0+90x200",
        f'tachoscope_requests_total{{{CHAT},outcome="shed"}}': "0+10x200",
        f'tachoscope_requests_total{{{CHAT},outcome="client_error"}}': "0+900x200",
        f'tachoscope_requests_total{{{SEARCH},outcome="ok"}}': "0+30x200",
        'tachoscope_requests_total{service="idle",model="m",outcome="ok"}': "7x200",
    }
    share, failed = WRITTEN["Availability", "A"], WRITTEN["By model", "E"]
    outcomes = {'{outcome="ok"}': 4.0, '{outcome="shed"}': 10 / 30, '{outcome="client_error"}': 30.0}

    found = wrong(
        tmp_path,
        planted,
        [
            (share, "30m", {CHAT_KEY: 0.9, SEARCH_KEY: 1.0}),
            (failed, "30m", {CHAT_KEY: 0.1, SEARCH_KEY: 0.0}),
            (WRITTEN["Requests by outcome", "A"], "30m", {name: round(value, 6) for name, value in outcomes.items()}),
        ],
    )

    assert found == ""


def test_quantiles_are_of_all_that_is_chosen_and_there_are_none_without_requests(tmp_path: Path) -> None:
    # 94 of 100 within 0.5 s and 6 in between 2 and 2.5 s: p50 and p95 lie where a line between the bounds of a bucket says.
    metric = "tachoscope_request_first_token_seconds"
    planted = buckets(metric, CHAT, {"0.25": 0, "0.5": 94, "2.0": 94, "2.5": 100, "+Inf": 100})
    planted |= buckets(metric, 'service="idle",model="m"', {"0.5": 0, "+Inf": 0})
    quantiles = [WRITTEN["Time to the first token, quantiles", name] for name in "ABC"]
    bands = WRITTEN["Time to the first token", "A"]

    found = wrong(
        tmp_path,
        planted,
        [
            (quantiles[0], "30m", {"{}": round(0.25 + 0.25 * 50 / 94, 6)}),
            (quantiles[1], "30m", {"{}": round(2 + 0.5 / 6, 6)}),
            (quantiles[2], "30m", {"{}": round(2 + 0.5 * 5 / 6, 6)}),
            (WRITTEN["By model", "C"], "30m", {CHAT_KEY: round(2 + 0.5 / 6, 6)}),
            (
                f'sum by (le) ({bands}) and on (le) label_replace(vector(1), "le", "0.5", "", "")',
                "30m",
                {'{le="0.5"}': round(94 / 30, 6)},
            ),
        ],
        choice={"service": "chat|idle"},
    )

    assert found == ""
    assert wrong(tmp_path, planted, [(quantiles[1], "30m", {})], choice={"service": "idle"}) == ""


def test_the_heat_map_of_services_with_different_buckets_has_only_bounds_that_all_have_and_counts_rise(tmp_path: Path) -> None:
    """Of both within 0.1 s there would be 90, within 0.5 s 145, within 1 s 100: of one service alone."""
    metric, bands = "tachoscope_request_first_token_seconds", WRITTEN["Time to the first token", "A"]
    chat, search = {"0.1": 90, "0.5": 95, "1.0": 100, "+Inf": 100}, {"0.5": 50, "2.0": 100, "+Inf": 100}
    planted = buckets(metric, f'{CHAT},instance="n1"', chat) | buckets(metric, f'{CHAT},instance="n2"', chat)
    planted |= buckets(metric, SEARCH, search)

    def of(*parts: dict[str, int]) -> dict[str, float]:
        common = set.intersection(*map(set, parts))
        return {f'{{le="{bound}"}}': sum(part[bound] for part in parts) / 30 for bound in common}

    assert of(chat, chat, search).keys() == {'{le="0.5"}', '{le="+Inf"}'}
    assert wrong(tmp_path, planted, [(bands, "30m", of(chat, chat, search))]) == ""
    assert wrong(tmp_path, planted, [(bands, "30m", of(chat, chat))], choice={"service": "chat"}) == ""
    assert "those that all chosen ones have" in PANELS["Time to the first token"]["description"]


def test_states_of_a_ledger_are_shares_and_there_are_none_where_no_request_ended(tmp_path: Path) -> None:
    time = "tachoscope_request_time_seconds_total"
    planted = {f'{time}{{{CHAT},state="queued"}}': "0+5x200", f'{time}{{{CHAT},state="decode"}}': "0+15x200"}
    planted |= {f'{time}{{service="idle",model="m",state="{state}"}}': "3x200" for state in REQUEST_STATES}
    states = WRITTEN["Where the time of requests goes", "A"]
    answer = {'{state="queued"}': 0.25, '{state="decode"}': 0.75}

    assert wrong(tmp_path, planted, [(states, "30m", answer)], choice={"service": "chat"}) == ""
    assert wrong(tmp_path, planted, [(states, "30m", {})], choice={"service": "idle"}) == ""


def test_what_engines_do_with_tokens(tmp_path: Path) -> None:
    planted = {
        f'tachoscope_request_tokens_total{{{CHAT},direction="in"}}': "0+1000x200",
        f'tachoscope_request_tokens_total{{{CHAT},direction="out"}}': "0+600x200",
        f"tachoscope_engine_prompt_tokens_total{{{CHAT}}}": "0+250x200",
        f"tachoscope_engine_iterations_total{{{CHAT}}}": "0+50x200",
        f"tachoscope_request_preemptions_total{{{CHAT}}}": "0+3x200",
    }
    wanted = {"Prompt tokens computed, for each that came": 0.25, "Tokens of a pass": 12.0, "Preemptions": 0.1}

    asked = [(WRITTEN[title, "A"], "30m", {CHAT_KEY: value}) for title, value in wanted.items()]
    asked.append((WRITTEN["Tokens a second", "A"], "30m", {'{direction="in"}': 33.333333, '{direction="out"}': 20.0}))

    assert wrong(tmp_path, planted, asked) == ""


def test_the_numbers_at_the_top_are_those_of_the_rules(tmp_path: Path) -> None:
    planted = {
        f'tachoscope_requests_total{{{CHAT},outcome="ok"}}': "0+90x200",
        f'tachoscope_requests_total{{{CHAT},outcome="timeout"}}': "0+10x200",
        f'tachoscope_requests_total{{{SEARCH},outcome="ok"}}': "0+100x200",
    }
    rules = [path.name for path in sorted(RULES.glob("inference-availability.rules.yaml"))]
    answered = WRITTEN["Answered", "A"]

    assert wrong(tmp_path, planted, [(answered, "90m", {"{}": 0.95})], rules=rules) == ""
    assert wrong(tmp_path, planted, [(answered, "90m", {"{}": 0.9})], rules=rules, choice={"service": "chat"}) == ""


def test_services_are_all_up_partly_up_or_down(tmp_path: Path) -> None:
    up = {("chat", "n1"): "1x9", ("chat", "n2"): "0x9", ("search", "n1"): "1x9", ("search", "n2"): "1x9", ("gone", "n1"): "0x9"}
    planted = {f'tachoscope_server_up{{service="{service}",instance="{node}"}}': values for (service, node), values in up.items()}
    answer = {'{service="chat"}': 1, '{service="search"}': 2, '{service="gone"}': 0}

    assert wrong(tmp_path, planted, [(WRITTEN["Services", "A"], "3m", answer)]) == ""
    (mapping,) = PANELS["Services"]["fieldConfig"]["defaults"]["mappings"]
    assert mapping["options"].keys() == {"0", "1", "2"}


def test_a_start_is_marked_once_although_the_server_was_away_while_it_loaded(tmp_path: Path) -> None:
    # It began again at 20 min, and was first seen at 35 min.
    planted = {
        'tachoscope_server_start_time_seconds{service="chat",instance="n1"}': "-100x20 stale _x13 1200x40",
        'tachoscope_server_start_time_seconds{service="chat",instance="n2"}': "-500x80",
    }
    starts = WRITTEN["Server starts", ""]
    asked = [(starts, f"{minute}m", {'{service="chat"}': 1200.0} if minute == 35 else {}) for minute in range(31, 60)]

    assert wrong(tmp_path, planted, asked, interval="1m") == ""


def test_alerts_of_the_chosen_services_are_marked_where_they_begin(tmp_path: Path) -> None:
    planted = {
        'ALERTS{alertname="InferenceDown",alertstate="firing",severity="page",area="inference",service="chat"}': "1x9",
        'ALERTS{alertname="InferenceDown",alertstate="firing",severity="page",area="inference",service="search"}': "1x9",
        'ALERTS{alertname="GpuLost",alertstate="firing",severity="page",area="infrastructure"}': "1x9",
    }
    answer = {'{alertname="InferenceDown",service="chat",severity="page"}': 1.0}

    asked = [(WRITTEN["Alerts", ""], "30s", answer), (WRITTEN["Alerts", ""], "2m", {})]

    assert wrong(tmp_path, planted, asked, choice={"service": "chat"}) == ""
