"""What was collected when a job of a store hung."""

from __future__ import annotations

from tachoscope_analyzers.hang_evidence import report as hang_report
from tachoscope_cli.common.options import store_url
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report
from tachoscope_core.storage import hang_bundles
from tachoscope_core.storage.store import Store


def hang_of_job(job: str, store_name: str | None, attempt: int | None = None) -> Report:
    """Return the report on a job's last hang, or on that of an attempt.

    Raises:
        TachoscopeError: the store has no such job, or nothing was collected that can be used.
    """
    store = Store(store_url(store_name))
    if job not in store.jobs():
        raise TachoscopeError(
            f"there is neither a path {job!r} nor a job of that name in store {store.url}", fix="tachoscope store ls"
        )
    found = hang_bundles.last_hang(store, job, attempt)
    if not (found.bundles or found.refused):
        which = "" if attempt is None else f" in attempt {attempt}"
        raise TachoscopeError(
            f"no evidence of a hang of job {job!r}{which} in store {store.url}",
            fix="`tachoscope run` and agents collect while a job hangs (docs/guides/hangs.md); what its records say: "
            f"tachoscope analyze --job {job}",
        )
    return hang_report.report(found)
