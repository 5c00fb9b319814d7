# SPDX-License-Identifier: Apache-2.0
"""The bill of materials: valid by the schema, and what it says is what the binaries, the packages and the wheel say."""
import functools
import json
import re
import subprocess
import zipfile

import pytest
import sbom
from conftest import PACKAGE, ROOT, VERSION, run

PYTHON = ROOT / "build/makers/bin/python"
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read())
sys.exit(str(error.data)[:500] if error else 0)
"""


@pytest.fixture(scope="module")
def made(debs):
    return json.loads((PACKAGE / "weft.cdx.json").read_text())


def by_name(made):
    return {component["name"]: component for component in made["components"]}


def test_sbom__is_valid_by_the_schema_and_a_wrong_one_is_not(made, tmp_path):
    run(PYTHON, "-c", VALIDATE, PACKAGE / "weft.cdx.json")
    made = json.loads(json.dumps(made))
    made["components"][0]["scope"] = "perhaps"
    (tmp_path / "wrong.json").write_text(json.dumps(made))
    assert subprocess.run([PYTHON, "-c", VALIDATE, tmp_path / "wrong.json"], capture_output=True, check=False).returncode == 1


@functools.lru_cache(None)
def owner_of(library):
    """The package that a library is of; /lib and /usr/lib are one folder, and dpkg knows either name."""
    for path in (library, f"/usr{library}", library.removeprefix("/usr")):
        done = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    raise AssertionError(f"{library} is of no package")


@functools.lru_cache(None)
def version_of(package):
    return run("dpkg-query", "-W", "-f", "${Version}", package)


def test_sbom__has_the_package_of_every_library_that_is_linked(made, root):
    components = by_name(made)
    cache = run("ldconfig", "-p")
    for path in [*(root / "usr/bin").iterdir(), *root.glob("usr/lib/*/libweft.so.*.*.*")]:
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", path)):
            if name.startswith("libweft."):
                continue
            owner = owner_of(cache.split(f"\t{name} ")[1].split("=> ")[1].split("\n")[0])
            assert components[owner]["scope"] == "required", (path.name, name)
            assert components[owner]["version"] == version_of(owner)


def test_sbom__has_what_is_opened_as_optional_and_what_is_compiled_in(made):
    components = by_name(made)
    for name in ("libibverbs1", "librdmacm1", "libfabric1", "libmicrohttpd12"):
        assert components[name]["scope"] == "optional", name
    assert components["libmsgpack-dev"]["scope"] == "required"
    facts = json.loads((PACKAGE / "tree/package/facts.json").read_text())
    assert ("cuda-runtime" in components) == bool(facts["cuda"])


def test_sbom__names_a_licence_of_every_component_of_Debian(made):
    found = [component for component in made["components"] if component["bom-ref"].startswith("debian:")]
    assert len(found) >= 10 and all(component["licenses"] for component in found)
    assert any("MIT" in one["license"]["name"] or "Expat" in one["license"]["name"]
               for one in by_name(made)["libjansson4"]["licenses"])


def test_sbom__has_the_sums_of_the_packages_and_who_needs_whom(made, debs):
    components = by_name(made)
    for deb in debs.values():
        name = deb.name.split("_")[0]
        assert components[name]["hashes"] == [{"alg": "SHA-256", "content": sbom.sha256(deb)}]
    needs = {row["ref"]: row["dependsOn"] for row in made["dependencies"]}
    assert "weft:libweft0.2" in needs["weft:weft"] and "debian:libzmq5" in needs["weft:libweft0.2"]
    known = {component["bom-ref"] for component in made["components"]} | {"weft"}
    assert {name for names in needs.values() for name in names} <= known and set(needs) <= known
    assert made["metadata"]["component"]["version"] == VERSION


def test_sbom__is_the_same_again(made, tmp_path):
    seconds = (PACKAGE / "tree/package/seconds").read_text().strip()
    for name in ("one", "two"):
        run(ROOT / "deploy/package/sbom.py", PACKAGE, tmp_path / name, env={"SOURCE_DATE_EPOCH": seconds})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_sbom__of_a_wheel_has_what_it_carries_and_needs(debs, tmp_path):
    wheel = tmp_path / "weft-1.0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("weft-1.0.dist-info/METADATA", "Name: weft\nVersion: 1.0\nRequires-Dist: cffi>=1.15\n\nText.\n")
        archive.writestr("weft.libs/libzmq-01234567.so.5", "bytes")
        archive.writestr("weft.libs/libnone-01234567.so.5", "bytes")
    run(ROOT / "deploy/package/sbom.py", PACKAGE, tmp_path / "made.json", wheel)
    run(PYTHON, "-c", VALIDATE, tmp_path / "made.json")
    made = json.loads((tmp_path / "made.json").read_text())
    needs = {row["ref"]: row["dependsOn"] for row in made["dependencies"]}
    assert needs["weft:wheel"] == ["pypi:cffi", "wheel:libnone-01234567.so.5", "wheel:libzmq-01234567.so.5"]
    components = by_name(made)
    assert components["cffi"]["purl"] == "pkg:pypi/cffi" and "of no package" in components["libnone-01234567.so.5"]["description"]
    copy, original = components["libzmq-01234567.so.5"], components["libzmq5"]
    assert (copy["version"], copy["licenses"]) == (original["version"], original["licenses"])


def test_sbom__without_packages_says_how_to_make_them(tmp_path):
    command = [ROOT / "deploy/package/sbom.py", tmp_path, tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "has no package: make them first (./bootstrap package)" in done.stderr
