import subprocess
import sys
from pathlib import Path


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | env)


def test_the_callback_runs_once_after_the_import_and_sees_a_finished_module() -> None:
    done = run(
        "from tachoscope.process.import_hook import after_import\n"
        "after_import('xml.dom.minidom', lambda m: print('seen', hasattr(m, 'parseString')))\n"
        "import xml.dom.minidom, importlib; importlib.reload(xml.dom.minidom)\n"
        "after_import('json', lambda m: print('later', m.__name__)); import json"
    )

    assert done.stdout.splitlines() == ["seen True", "later json"]


def test_a_callback_that_fails_is_one_line_and_the_import_succeeds() -> None:
    done = run(
        "from tachoscope.process.import_hook import after_import\n"
        "after_import('wave', lambda m: 1 / 0)\nimport wave; print(wave.__name__)"
    )

    assert done.stdout == "wave\n"
    assert done.stderr == "tachoscope: not watching wave: ZeroDivisionError: division by zero\n"


def test_a_sitecustomize_of_the_users_still_runs(tmp_path: Path) -> None:
    import tachoscope

    (tmp_path / "sitecustomize.py").write_text("print('the user\\'s own')")
    bootstrap = Path(tachoscope.__file__).parent / "bootstrap"
    done = run("import sys; print('torch' in sys.modules)", PYTHONPATH=f"{bootstrap}:{tmp_path}", TACHOSCOPE_RUN_DIR=str(tmp_path))

    assert done.stdout.splitlines() == ["the user's own", "False"]
    assert done.stderr == ""


def test_importing_the_probe_imports_neither_torch_nor_pandas() -> None:
    dear = {"torch", "pandas", "numpy", "rich", "importlib.metadata"}
    done = run(f"import sys, tachoscope, tachoscope.start; print({dear} & set(sys.modules))")

    assert done.stdout == "set()\n"
