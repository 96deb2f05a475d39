"""`python -m benchmarks` knows every benchmark there is, and is polite about one that there is not."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def benchmarks(*words):
    return subprocess.run([sys.executable, "-m", "benchmarks", *words], cwd=ROOT, capture_output=True, text=True)


def test_list_names_every_module():
    listed = benchmarks("--list").stdout.split()
    modules = {path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py")}
    assert sorted(listed) == sorted(modules)


def test_every_module_says_what_it_measures():
    for path in (ROOT / "benchmarks").glob("[!_]*.py"):
        text = path.read_text()
        assert text.startswith('"""'), path.name
        assert "\ndef measure() -> list[Result]:" in text, path.name


def test_an_unknown_name_is_bad_usage_with_the_known_ones():
    done = benchmarks("sdg")
    assert done.returncode == 2
    assert "no benchmark 'sdg'" in done.stderr
    assert "horizontal" in done.stderr
