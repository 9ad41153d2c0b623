import numpy as np
import pytest

from planted_server import Engine, requests, serve
from tachoscope_analyzers.serving.classes.iteration_cost import pace
from tachoscope_analyzers.serving.classes.states import spent
from tachoscope_analyzers.serving.records.non_negative_least_squares import non_negative
from tachoscope_analyzers.serving.records.traffic import traffic


@pytest.mark.parametrize("by_prompt_token", [0.00002, 0.00006, 0.0002])
def test_the_planted_cost_of_a_prompt_token_is_found(by_prompt_token: float) -> None:
    engine = Engine(by_prompt_token=by_prompt_token)
    looks, truth = serve(engine, requests(8, 60, 20, 50, long_prompt=600, long_share=0.3), 60.0)
    seen = traffic(looks)
    fitted = pace(seen, without=spent(seen).away)

    assert fitted is not None
    assert fitted.by_prompt_token_low > 0
    assert float((fitted.by_prompt_token * fitted.prompt_tokens * fitted.weights).sum()) == pytest.approx(
        truth["interference"], rel=0.2
    )


def test_prompts_that_cost_nothing_are_not_blamed() -> None:
    looks, _ = serve(Engine(by_prompt_token=0.0), requests(8, 60, 20, 50, long_prompt=600, long_share=0.3), 60.0)
    seen = traffic(looks)
    books = spent(seen)
    fitted = pace(seen, without=books.away)

    assert fitted is not None
    blamed = float((fitted.by_prompt_token * fitted.prompt_tokens * fitted.weights).sum())
    assert blamed < 0.05 * float(books.request_seconds.sum())


def test_a_server_that_hardly_did_anything_is_not_fitted() -> None:
    looks, _ = serve(Engine(), requests(0.05, 60, 20, 5), 60.0)
    seen = traffic(looks)

    assert pace(seen, without=spent(seen).away) is None


def test_coefficients_are_the_best_of_those_that_are_not_negative() -> None:
    randomly = np.random.default_rng(1)
    columns = np.column_stack([np.ones(50), randomly.random(50), randomly.random(50)])
    values = columns @ np.array([2.0, 0.0, 3.0]) - 0.5 * columns[:, 1]

    found = non_negative(columns, values, np.ones(50))

    assert (found >= 0).all()
    assert found[1] == 0.0
    assert found[2] == pytest.approx(3.0, rel=0.2)
