#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What weft's packages are made of and need, as CycloneDX 1.5 (JSON):

    sbom.py FOLDER OUT [WHEEL]     FOLDER: with the packages (*.deb) that deploy/package/debian made, and their tree; WHEEL: the
                                   Python package, with the libraries that it carries

Nothing in it is a list that somebody keeps: dependencies are those that the packages declare, versions and licences those of
Debian's packages on the machine that built them. Scopes: required is linked, or compiled in from headers; optional is opened
where it is wanted. The date is that of SOURCE_DATE_EPOCH.
"""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import uuid
import zipfile

# no library is linked, but its headers' functions are compiled in: the package that has them
HEADERS = ["libmsgpack-dev"]
LICENCES = pathlib.Path("/usr/share/doc")
OURS = {"license": {"id": "Apache-2.0"}}


class Missing(Exception):
    """A fact is not to be had here."""


def said_by(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"`{' '.join(map(str, command))}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def needed(text):
    """The packages of a Depends or Recommends line."""
    return [re.split(r"[ (:]", one.strip())[0] for one in text.replace("|", ",").split(",") if one.strip()]


def fields_of(deb):
    said = said_by("dpkg-deb", "-f", deb)
    return dict(re.findall(r"(?m)^([A-Z][A-Za-z-]*): (.*)$", said))


def licences_of(package):
    """As its copyright file names them, each once; a file that is not in that form has text alone."""
    path = LICENCES / package / "copyright"
    if not path.exists():
        raise Missing(f"{path} is missing: the licence of {package} is not known; install the package")
    text = path.read_text(errors="replace")
    found = re.findall(r"(?m)^License:[ \t]*(\S.*)$", text) if text.startswith("Format") else []
    names = dict.fromkeys(name.strip() for name in found)
    return [{"license": {"name": name}} for name in names] or [{"license": {"name": f"see {path}"}}]


def debian_component(package, scope, how):
    said = said_by("dpkg-query", "-W", "-f", "${Version}|${Architecture}|${source:Package}", package)
    version, architecture, source = said.split("|")
    return {"type": "library", "bom-ref": f"debian:{package}", "name": package, "version": version, "scope": scope,
            "description": how, "licenses": licences_of(package),
            "purl": f"pkg:deb/debian/{package}@{version}?arch={architecture}",
            "properties": [{"name": "debian:source", "value": source}]}


def scopes(packages):
    """{Debian's package: (scope, how)} of all that ours name and are not."""
    own = {fields["Package"] for fields in packages.values()}
    found = {name: ("required", "compiled in from its headers") for name in HEADERS}
    opened = ("optional", "opened where it is wanted")
    for field, scope, how in (("Suggests", *opened), ("Recommends", *opened), ("Depends", "required", "linked")):
        for fields in packages.values():
            for name in needed(fields.get(field, "")):
                if name not in own:
                    found[name] = (scope, how if name != "python3" else "runs the scripts of share/weft/deploy")
    return found


def carried_component(name, data):
    """A library that auditwheel put into the wheel, under its name with a sum in it, and the package that it is a copy of."""
    file = pathlib.PurePath(name).name
    made = {"type": "library", "bom-ref": f"wheel:{file}", "name": file, "scope": "required", "description": "carried by the wheel",
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}]}
    plain = re.sub(r"-[0-9a-f]{8}(?=\.)", "", file)
    done = subprocess.run(["dpkg", "-S", f"*/{plain}"], capture_output=True, text=True, check=False)
    if done.returncode:
        return {**made, "description": f"carried by the wheel; {plain} is of no package on the machine that made this"}
    package = done.stdout.split(":")[0]
    version = said_by("dpkg-query", "-W", "-f", "${Version}\n", package).split("\n")[0]
    return {**made, "version": version, "description": f"carried by the wheel: of Debian's {package}",
            "licenses": licences_of(package)}


def wheel_components(wheel):
    """(the wheel, what it carries and needs)."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().split("\n\n")[0]
        version = re.search(r"(?m)^Version: (.+)$", lines)[1]
        libraries = [name for name in names if re.search(r"\.libs/.*\.so", name)]
        carried = [carried_component(name, archive.read(name)) for name in libraries]
    required = [{"type": "library", "bom-ref": f"pypi:{name}", "name": name, "scope": "required",
                 "description": "of the Python package", "purl": f"pkg:pypi/{name.lower()}"}
                for name in re.findall(r"(?m)^Requires-Dist: ([\w.-]+)[^;\n]*$", lines)]
    own = {"type": "file", "bom-ref": "weft:wheel", "name": wheel.name, "version": version, "licenses": [OURS],
           "hashes": [{"alg": "SHA-256", "content": sha256(wheel)}]}
    return own, carried + required


def cuda_component(version):
    return {"type": "library", "bom-ref": "nvidia:cudart", "name": "cuda-runtime", "version": version, "scope": "required",
            "description": "NVIDIA's CUDA runtime, linked statically", "supplier": {"name": "NVIDIA Corporation"},
            "licenses": [{"license": {"name": "CUDA Toolkit End User License Agreement"}}]}


def bom(folder, wheel=None):
    debs = sorted(folder.glob("*.deb"))
    if not debs:
        raise Missing(f"{folder} has no package: make them first (./bootstrap package)")
    facts = json.loads((folder / "tree" / "package" / "facts.json").read_text())
    packages = {deb: fields_of(deb) for deb in debs}
    foreign = scopes(packages)
    components = [debian_component(name, *foreign[name]) for name in sorted(foreign)]
    components += [cuda_component(facts["cuda"])] if facts["cuda"] else []
    own, edges = [], {}
    for deb, fields in packages.items():
        own.append({"type": "file", "bom-ref": f"weft:{fields['Package']}", "name": fields["Package"], "version": fields["Version"],
                    "description": deb.name, "licenses": [OURS], "hashes": [{"alg": "SHA-256", "content": sha256(deb)}]})
        on = [name for field in ("Depends", "Recommends", "Suggests") for name in needed(fields.get(field, ""))]
        edges[f"weft:{fields['Package']}"] = {f"debian:{name}" if name in foreign else f"weft:{name}" for name in on}
    for name in edges:
        if name != "weft:libweft-dev":
            edges[name] |= {f"debian:{header}" for header in HEADERS} | ({"nvidia:cudart"} if facts["cuda"] else set())
    if wheel:
        one, others = wheel_components(wheel)
        own.append(one)
        components += others
        edges["weft:wheel"] = {component["bom-ref"] for component in others}
    root = {"type": "application", "bom-ref": "weft", "name": "weft", "version": facts["version"],
            "description": facts["description"], "licenses": [OURS]}
    edges["weft"] = {component["bom-ref"] for component in own}
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    made = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)), "component": root},
            "components": own + components,
            "dependencies": [{"ref": name, "dependsOn": sorted(edges[name])} for name in sorted(edges)]}
    # a name of what it says, so that the same packages have the same bill
    made["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made, sort_keys=True)).urn
    return made


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        made = bom(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    except (Missing, OSError) as error:
        print(f"sbom.py: {error}", file=sys.stderr)
        return 1
    pathlib.Path(sys.argv[2]).write_text(json.dumps(made, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
