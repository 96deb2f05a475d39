"""A software bill of materials: what requirements.lock pins, as CycloneDX JSON. The same lock gives the same bytes.

    python .ci/sbom.py requirements.lock pyproject.toml > sbom.cdx.json

A component's hashes are those of all its files, one for each platform.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?==(?P<version>[^\s;\\]+)\s*(?:;\s*(?P<marker>[^\\]+?))?\s*")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(lock: str) -> list[dict[str, Any]]:
    """Every pinned package, in the lock's order; ValueError for a line that is neither a pin, a hash nor a comment."""
    found: list[dict[str, Any]] = []
    for number, line in enumerate(lock.splitlines(), start=1):
        text = line.strip().removesuffix("\\").strip()
        if not text or text.startswith("#"):
            continue
        if (known := HASH.fullmatch(text)) and found:
            found[-1]["hashes"].append({"alg": "SHA-256", "content": known[1]})
        elif pin := PIN.fullmatch(text):
            found.append(_component(pin["name"], pin["version"], pin["marker"]))
        else:
            raise ValueError(f"Line {number} of the lock is neither a pinned package nor a hash: {text[:80]}")
    return found


def bill(lock: str, project: dict[str, Any]) -> dict[str, Any]:
    """The whole document."""
    name, version = project["name"], project["version"]
    own = {"type": "library", "bom-ref": name, "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, f'{name} {version} {lock}')}",
        "version": 1,
        "metadata": {"component": {**own, "licenses": [{"license": {"id": project["license"]}}]}},
        "components": components(lock),
    }


def _component(name: str, version: str, marker: str | None) -> dict[str, Any]:
    purl = f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{version}"
    when = {"properties": [{"name": "python:marker", "value": marker}]} if marker else {}
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "hashes": [], **when}


if __name__ == "__main__":
    locked, about = (Path(argument).read_text(encoding="utf-8") for argument in sys.argv[1:3])
    sys.stdout.write(json.dumps(bill(locked, tomllib.loads(about)["project"]), indent=1) + "\n")
