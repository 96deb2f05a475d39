"""Known vulnerabilities in what a lock pins, by pip-audit; ends with 1 if there are any.

    python .ci/audit.py requirements.lock

Where pip-audit is not installed or cannot reach its database, it says so in one line and ends with 0: then nothing is
known, which is not the same as nothing found.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from typing import Any


def command() -> list[str] | None:
    """How pip-audit is started here: as this Python's own module, or as a program; None where there is none."""
    if find_spec("pip_audit") is not None:
        return [sys.executable, "-m", "pip_audit"]
    program = shutil.which("pip-audit")
    return None if program is None else [program]


def judged(output: str, errors: str) -> tuple[int, str]:
    """The exit code, and what is said, given what pip-audit wrote."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (errors.strip().splitlines() or ["it gave no reason"])[-1]
        return 0, f"Audit skipped: pip-audit could not look anything up ({last[:200]})."
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    if len(unknown) == len(packages):
        reason = packages[0]["skip_reason"] if packages else "it found no packages"
        return 0, f"Audit skipped: pip-audit could not look anything up ({reason[:200]})."
    lines = [
        f"{package['name']} {package['version']}: {one['id']}, fixed in {', '.join(one['fix_versions']) or 'none'}"
        for package in packages
        for one in package.get("vulns", ())
    ]
    looked_up = f"{len(packages) - len(unknown)} packages looked up"
    if unknown:
        looked_up += f", {len(unknown)} could not be ({', '.join(unknown[:5])}{', …' if len(unknown) > 5 else ''})"
    return int(bool(lines)), "\n".join([*lines, f"{looked_up}: {len(lines) or 'no'} known vulnerabilities."])


def main(lock: str) -> int:
    start = command()
    if start is None:
        sys.stdout.write("Audit skipped: pip-audit is not installed; get it with: pipx install pip-audit\n")
        return 0
    options = [
        "--requirement",
        lock,
        "--require-hashes",
        "--disable-pip",
        "--format",
        "json",
        "--progress-spinner",
        "off",
    ]
    done = subprocess.run([*start, *options], capture_output=True, text=True)
    code, words = judged(done.stdout, done.stderr)
    sys.stdout.write(words + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
