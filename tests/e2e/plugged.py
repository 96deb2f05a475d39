"""The example plugin, for tests: known in this process only, or installed in a folder as pip leaves it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit_slopes import FEATURE_SLOPES

from tacit.methods import known

FOLDER = Path(__file__).parents[2] / "examples" / "plugin"


@contextmanager
def plugged() -> Iterator[None]:
    """While the method is known to this process, and to no other."""
    methods = known()
    methods[FEATURE_SLOPES.name] = FEATURE_SLOPES
    try:
        yield
    finally:
        del methods[FEATURE_SLOPES.name]


def installed(folder: Path) -> Path:
    """A folder of installed packages, with the plugin's in it: for sys.path, or PYTHONPATH of other processes."""
    line = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    line += ["--no-build-isolation", "--no-compile", "--target", str(folder), str(FOLDER)]
    subprocess.run(line, check=True, capture_output=True, text=True)
    return folder
