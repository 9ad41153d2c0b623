"""Through the classes of the real frameworks; `tests/end_to_end/test_public_scripts.py` runs them under the probe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tachoscope.lineage import collect as lineage
from tachoscope.lineage import hyperparameters as framework_hyperparameters


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    yield
    lineage._seen.clear()


def seen() -> dict[str, object]:
    found: dict[str, object] = json.loads(lineage._seen["hyperparameters"])
    return found


@pytest.mark.bar  # imports transformers
def test_arguments_of_the_transformers_trainer_that_are_no_defaults_are_recorded(tmp_path: Path) -> None:
    from transformers import TrainingArguments
    from transformers.trainer_callback import CallbackHandler, TrainerControl, TrainerState

    begin = framework_hyperparameters.of_transformers(CallbackHandler.on_train_begin)
    arguments = TrainingArguments(
        output_dir=str(tmp_path), learning_rate=3e-4, use_cpu=True, hub_token="hf" + "_" + "a7" * 17, report_to=[]
    )
    handler = CallbackHandler([], None, None, None, None)
    control = begin(handler, arguments, TrainerState(), TrainerControl())
    assert isinstance(control, TrainerControl)
    assert seen()["learning_rate"] == 3e-4
    assert not {"output_dir", "hub_token", "num_train_epochs", "weight_decay"} & set(seen())


def fits(first: object, second: object) -> None:
    fit = framework_hyperparameters.of_lightning(lambda trainer, model: "fitted")
    assert fit(None, first) == "fitted"
    assert seen() == {"width": 64, "api_key": "***"}
    assert fit(None, model=second) == "fitted"
    assert seen() == {"width": 32, "api_key": "***"}


@pytest.mark.bar  # imports lightning
def test_hyperparameters_of_a_lightning_module_are_recorded() -> None:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self, width: int, api_key: str) -> None:
            super().__init__()
            self.save_hyperparameters()

    fits(Module(64, "abc"), Module(32, "abc"))


def test_hyperparameters_of_a_model_that_has_them_as_one_of_lightning_are_recorded() -> None:
    class Module:
        def __init__(self, width: int, api_key: str) -> None:
            self.hparams = {"width": width, "api_key": api_key}

    fits(Module(64, "abc"), Module(32, "abc"))


def test_a_model_without_hyperparameters_trains_as_ever() -> None:
    class Odd:
        @property
        def hparams(self) -> object:
            raise RuntimeError("not now")

    fit = framework_hyperparameters.of_lightning(lambda trainer, model=None, **kwargs: "fitted")
    assert fit(None, Odd()) == fit(None, model=Odd()) == fit(None) == "fitted"
    assert lineage._seen == {}
