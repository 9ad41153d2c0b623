from tachoscope_analyzers.compare.lineage import differences


def changed(now: dict[str, str], before: dict[str, str]) -> dict[str, tuple[str, str]]:
    return {row.name: (row.baseline, row.now) for row in differences(now, before)}


def test_hyper_parameters_are_told_one_by_one_and_their_hash_is_not() -> None:
    before = {"hyperparameters": '{"lr":0.1,"width":256}', "hyperparameters_hash": "sha256:1"}
    now = {"hyperparameters": '{"depth":3,"lr":0.2,"width":256}', "hyperparameters_hash": "sha256:2"}

    assert changed(now, before) == {"hyper-parameter lr": ("0.1", "0.2"), "hyper-parameter depth": ("", "3")}


def test_where_only_hashes_are_known_they_are_what_differs() -> None:
    assert changed({"hyperparameters_hash": "b"}, {"hyperparameters_hash": "a"}) == {"hyperparameters_hash": ("a", "b")}


def test_environment_variables_are_told_one_by_one_but_for_addresses() -> None:
    before = {"environment": "MASTER_PORT=1 OMP_NUM_THREADS=1 NCCL_ALGO='Ring Tree'"}
    now = {"environment": "MASTER_PORT=2 OMP_NUM_THREADS=4 NCCL_ALGO='Ring Tree'"}

    assert changed(now, before) == {"environment OMP_NUM_THREADS": ("1", "4")}


def test_what_is_another_in_every_run_is_no_difference() -> None:
    assert changed({"slurm_job": "2", "image": "a"}, {"slurm_job": "1", "image": "a"}) == {}


def test_where_nothing_is_known_of_one_run_nothing_differs() -> None:
    assert changed({"image": "a"}, {}) == {}


def test_values_that_were_cut_are_compared_as_a_whole() -> None:
    assert changed({"hyperparameters": '{"lr":0.1,"wi...'}, {"hyperparameters": '{"lr":0.1,"wo...'}) == {
        "hyperparameters": ('{"lr":0.1,"wo...', '{"lr":0.1,"wi...')
    }
    assert changed({"environment": "A='1"}, {"environment": "A='2"}) == {"environment A": ("'2", "'1")}
