"""What Tacit depends on is bounded, listed and looked up."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIRED = {one.name: one for one in map(Requirement, PROJECT["dependencies"])}


def script(name: str):
    spec = importlib.util.spec_from_file_location(f"ci_{name}", ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sbom, audit = script("sbom"), script("audit")


# -- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["numpy", "numba", "pyarrow", "duckdb", "dp-accounting"])
def test_a_dependency_that_breaks_between_releases_has_an_upper_bound(name):
    assert any(part.operator == "<" for part in REQUIRED[name].specifier)


@pytest.mark.parametrize("name", REQUIRED)
def test_the_lock_keeps_every_bound(name):
    pinned = [one["version"] for one in sbom.components(LOCK) if one["name"] == name]
    assert pinned
    assert all(version in REQUIRED[name].specifier for version in pinned)


# -- the bill of materials --------------------------------------------------------------------------------------------


def test_the_bill_lists_every_pin_with_its_hashes():
    made = sbom.bill(LOCK, PROJECT)
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch("urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made["serialNumber"])
    assert made["metadata"]["component"]["purl"] == f"pkg:pypi/tacit@{PROJECT['version']}"
    listed = made["components"]
    assert len(listed) == len(re.findall(r"^\S+==", LOCK, re.MULTILINE)) > 50
    assert sum(len(one["hashes"]) for one in listed) == LOCK.count("--hash=sha256:")
    assert all(one["hashes"] for one in listed)
    assert len({one["bom-ref"] for one in listed}) == len(listed)
    assert made == sbom.bill(LOCK, PROJECT)
    json.dumps(made)


def test_a_pin_keeps_its_marker_and_a_strange_line_is_an_error():
    pin = (
        f"Some.Name==1.2 ; python_version < '3.12' \\\n    --hash=sha256:{'a' * 64} \\\n    --hash=sha256:{'b' * 64}\n"
    )
    (one,) = sbom.components(f"# a comment\n{pin}")
    assert (one["purl"], one["version"]) == ("pkg:pypi/some-name@1.2", "1.2")
    assert one["properties"] == [{"name": "python:marker", "value": "python_version < '3.12'"}]
    assert [known["content"][0] for known in one["hashes"]] == ["a", "b"]
    with pytest.raises(ValueError, match="Line 2"):
        sbom.components("a==1\n-e elsewhere\n")


# -- the audit --------------------------------------------------------------------------------------------------------


def found(*vulnerabilities: str, **more: object) -> dict:
    return {
        "name": "a",
        "version": "1",
        "vulns": [{"id": id, "fix_versions": ["2"]} for id in vulnerabilities],
        **more,
    }


def test_a_known_vulnerability_is_named_and_fails():
    code, words = audit.judged(json.dumps({"dependencies": [found("CVE-1"), found()]}), "")
    assert code == 1
    assert "a 1: CVE-1, fixed in 2" in words
    assert "2 packages looked up: 1 known" in words


def test_nothing_found_ends_well_and_says_what_could_not_be_looked_up():
    skipped = {"name": "own", "skip_reason": "not there"}
    assert audit.judged(json.dumps({"dependencies": [found(), skipped]}), "") == (
        0,
        "1 packages looked up, 1 could not be (own): no known vulnerabilities.",
    )


@pytest.mark.parametrize("output", ["", "not json", "[]", "{}"])
def test_a_database_that_cannot_be_reached_is_a_skip_and_says_so(output):
    code, words = audit.judged(output, "Traceback\nConnectionError: no route")
    assert (code, words) == (
        0,
        "Audit skipped: pip-audit could not look anything up (ConnectionError: no route).",
    )


def test_a_database_that_knows_no_package_is_a_skip_too():
    nobody = {"dependencies": [{"name": "a", "skip_reason": "not found"}, {"name": "b", "skip_reason": "not found"}]}
    code, words = audit.judged(json.dumps(nobody), "")
    assert (code, words) == (0, "Audit skipped: pip-audit could not look anything up (not found).")
    assert audit.judged('{"dependencies": []}', "")[1].startswith("Audit skipped")


# -- where to find it -------------------------------------------------------------------------------------------------


def test_how_to_report_a_vulnerability_and_which_versions_are_supported_is_said():
    text = (ROOT / "SECURITY.md").read_text()
    minor = ".".join(PROJECT["version"].split(".")[:2])
    assert f"| {minor}.x | yes" in text
    assert "private security advisory" in text
