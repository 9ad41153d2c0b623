from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secret_corpus import HOSTILE, HYPERPARAMETERS, IN_ARGUMENTS, IN_CONTEXT, INNOCENTS, OF_COMMANDS, PLAIN_HYPERPARAMETERS, TOKENS
from tachoscope.lineage.collect import hyperparameters_of
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.redaction import HIDDEN, redact, redact_arguments, redact_environment, redact_value
from trying import each

HARMLESS = (Path(__file__).parent.parent / "harmless_arguments.txt").read_text().splitlines()
AROUND = (
    "{}",
    "x {} y",
    "'{}'",
    '{{"a": "{}"}}',
    "value={}",
    "--data={} --lr 1",
    "https://host/{}/x",
    "({}),",
    "a\n{}\nb",
    "note:{}",
)


@each("around", AROUND)
@each("name", TOKENS)
def test_a_secret_of_a_known_format_is_hidden_wherever_it_stands(name: str, around: str) -> None:
    secret = TOKENS[name]
    for line in secret.split("\n")[1:-1] or [secret]:  # of a private key every line
        assert line not in redact(around.format(secret))


@each("name", TOKENS)
def test_a_secret_that_was_cut_is_hidden_as_far_as_it_goes(name: str) -> None:
    secret = TOKENS[name]
    cut = secret[: max(len(secret) * 9 // 10, 20)]
    assert cut[-12:] not in redact(f"the end {cut}")


@pytest.mark.parametrize("name", IN_CONTEXT)
def test_a_secret_that_its_context_tells_is_hidden_and_the_context_stays(name: str) -> None:
    text, secret = IN_CONTEXT[name]
    shown = redact(text)
    assert secret not in shown
    assert HIDDEN in shown
    assert shown.split()[0].rstrip("=:'\"")[:4] == text.split()[0][:4]


@pytest.mark.parametrize("name", IN_ARGUMENTS)
def test_in_a_command_line_the_name_of_an_option_is_enough(name: str) -> None:
    arguments, secret = IN_ARGUMENTS[name]
    shown = redact_arguments(arguments)
    assert secret not in " ".join(shown)
    assert HIDDEN in " ".join(shown)
    assert redact_arguments(shown) == shown
    assert redact_arguments([*arguments, "--lr", "0.1"]) == [*shown, "--lr", "0.1"]


@pytest.mark.parametrize("name", OF_COMMANDS)
def test_what_a_known_program_takes_as_a_secret_is_hidden(name: str) -> None:
    words, secret = OF_COMMANDS[name]
    shown = redact_arguments(words)

    assert secret not in " ".join(shown)
    assert len(shown) == len(words)
    assert shown[0] == words[0]


@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_a_secret_among_hyperparameters_is_hidden_as_number_and_nested(name: str) -> None:
    values, secret = HYPERPARAMETERS[name]

    assert secret not in hyperparameters_of({**values, "lr": 3})["hyperparameters"]


def test_hyperparameters_whose_names_only_look_like_those_of_secrets_stay() -> None:
    assert json.loads(hyperparameters_of(PLAIN_HYPERPARAMETERS)["hyperparameters"]) == PLAIN_HYPERPARAMETERS


@each("line", HARMLESS)
def test_of_the_arguments_of_usual_commands_nothing_is_hidden(line: str) -> None:
    assert redact_arguments(line.split()) == line.split()


@each("name", INNOCENTS)
def test_what_only_looks_like_a_secret_stays(name: str) -> None:
    assert redact(INNOCENTS[name]) == INNOCENTS[name]
    words = INNOCENTS[name].split()
    assert redact_arguments(words) == words


@each("text", [*TOKENS.values(), *(text for text, _ in IN_CONTEXT.values()), *INNOCENTS.values()])
def test_redacting_twice_is_redacting_once(text: str) -> None:
    assert redact(redact(text)) == redact(text)


PIECES = [
    *"aZ19_-.:/@=&?\"'\\ \n*~;",
    "password",
    "--token ",
    "http://",
    "Bearer ",
    "authorization:",
    "AKIA0123456789AB",
    "wandb key ",
]


SURROUNDINGS = st.lists(st.sampled_from(PIECES), max_size=15).map("".join)


@given(st.sampled_from(sorted(TOKENS)), SURROUNDINGS | st.text(max_size=30), SURROUNDINGS | st.text(max_size=30))
def test_no_text_around_a_token_uncovers_it(name: str, before: str, after: str) -> None:
    secret = TOKENS[name].split("\n")[1 if "\n" in TOKENS[name] else 0]
    # Glued to other letters it is another word.
    assert secret not in redact(f"{before} {TOKENS[name]} {after}")


@pytest.mark.parametrize("piece", HOSTILE)
def test_long_hostile_text_is_read_in_linear_time(piece: str) -> None:
    """A pattern that goes back and forth would not end within minutes."""
    for end in ("@", " x"):
        redact(piece * (20_000 // len(piece)) + end)


def test_the_value_of_a_secret_option_is_hidden_and_the_next_option_is_not() -> None:
    shown = redact_arguments(["train.py", "--password", "-x y", "--use_auth_token", "--lr", "0.1", "--api-key=a,b c", "TOKEN=q;r"])
    assert shown == ["train.py", "--password", "***", "--use_auth_token", "--lr", "0.1", "--api-key=***", "TOKEN=***"]


def test_json_stays_json() -> None:
    config = {"lr": 0.1, "db": {"password": 'a "quoted" one', "hosts": ["a", "b"]}, "note": TOKENS["private key"]}
    shown = json.loads(redact(json.dumps(config)))
    assert shown == {"lr": 0.1, "db": {"password": "***", "hosts": ["a", "b"]}, "note": "***"}


def test_only_listed_variables_are_recorded_and_their_values_are_looked_at_too() -> None:
    environ = {
        "SLURM_JOB_ID": "17",
        "SLURM_JWT": TOKENS["JSON web token"],
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": f"/logs/{TOKENS['Hugging Face token']}",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "AWS_SECRET_ACCESS_KEY": "x",
        "MY_FAVOURITE_COLOUR": "blue",
    }
    assert redact_environment(environ) == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": "/logs/***",
        "SLURM_JOB_ID": "17",
        "SLURM_JWT": "***",
    }


def test_a_name_says_that_its_value_is_a_secret_as_a_whole() -> None:
    assert redact_value("db_password", "a b = c") == "***"
    assert redact_value("hiddenSize", "a b = c") == "a b = c"


def test_an_error_never_shows_a_secret() -> None:
    error = TachoscopeError("could not list s3://key:hunter2@bucket/x", fix="--store https://user:hunter2@host")
    assert str(error) == "could not list s3://***@bucket/x (--store https://***@host)"
