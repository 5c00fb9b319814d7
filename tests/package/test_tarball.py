# SPDX-License-Identifier: Apache-2.0
"""The source as a file: the same bytes from every clone, all that is committed and nothing else, and it builds without git."""
import gzip
import hashlib
import io
import json
import pathlib
import subprocess
import tarfile

import pytest
from conftest import PACKAGE, ROOT, VERSION, run

NAME = f"weft-{VERSION}.tar.gz"


@pytest.fixture(scope="module")
def tarball(tmp_path_factory):
    out = tmp_path_factory.mktemp("tarball")
    run(ROOT / "deploy/package/tarball", out)
    return out / NAME


def commit(folder, *arguments):
    return run("git", "-C", folder, *arguments).strip()


def test_tarball__of_another_clone_with_other_settings_is_the_same_bytes(tarball, tmp_path):
    run("git", "clone", "-q", ROOT, tmp_path / "clone")
    commit(tmp_path / "clone", "config", "core.autocrlf", "true")
    commit(tmp_path / "clone", "config", "tar.umask", "0077")
    (tmp_path / "clone/README.md").touch()
    run(tmp_path / "clone/deploy/package/tarball", tmp_path / "out", commit(ROOT, "rev-parse", "HEAD"))
    assert (tmp_path / "out" / NAME).read_bytes() == tarball.read_bytes()


def test_tarball__has_every_committed_file_with_the_commits_date_and_no_name_of_who_made_it(tarball):
    with tarfile.open(tarball) as archive:
        members = archive.getmembers()
        assert {member.mtime for member in members} == {int(commit(ROOT, "log", "-1", "--format=%ct"))}
        assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "root", "root")}
        assert {oct(member.mode) for member in members if not member.issym()} <= {"0o644", "0o755"}
        files = {member.name.partition("/")[2] for member in members if not member.isdir()}
        assert files == set(commit(ROOT, "ls-tree", "-r", "--name-only", "HEAD").splitlines())
        assert {member.name.split("/")[0] for member in members} == {f"weft-{VERSION}"}
    assert tarball.read_bytes()[4:9] == b"\0\0\0\0\x02"  # gzip -9n


def compiled(build, source):
    """The files that a build compiles, from the root of their source; what the build itself writes is left out."""
    paths = [pathlib.Path(row["file"]) for row in json.loads((build / "compile_commands.json").read_text())]
    return {str(path.relative_to(source)) for path in paths if path.is_relative_to(source) and not path.is_relative_to(build)}


def test_tarball__builds_without_git(tarball, tmp_path):
    """The same files are to be compiled as here, and the packer is: all others would take a minute."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(tarball.read_bytes()))) as archive:
        archive.extractall(tmp_path)
    source, build = tmp_path / f"weft-{VERSION}", tmp_path / "build"
    run("cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DWEFT_TESTS=OFF", "-DWEFT_CUDA=off")
    committed = set(commit(ROOT, "ls-tree", "-r", "--name-only", "HEAD").splitlines())
    wanted, found = compiled(PACKAGE / "tree", ROOT) & committed, compiled(build, source)
    assert {name for name in wanted ^ found if "cuda/" not in name} == set() and len(found) > 200  # those of a toolkit are not
    run("cmake", "--build", build, "--target", "weft_pack")
    done = subprocess.run([source / "deploy/package/tarball", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "is no clone: a tarball is made from a commit, in a clone" in done.stderr


def test_tarball__of_a_commit_that_is_not_there_is_refused(tmp_path):
    done = subprocess.run([ROOT / "deploy/package/tarball", tmp_path, "none-such"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "there is no commit 'none-such'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_sums__are_of_all_files_of_a_release(debs):
    rows = dict(reversed(line.split("  ")) for line in (PACKAGE / "SHA256SUMS").read_text().splitlines())
    assert {*(path.name for path in debs.values()), "weft.cdx.json"} <= set(rows)
    assert set(rows) == {path.name for path in PACKAGE.iterdir() if path.suffix in {".deb", ".gz", ".json"}}
    for name, digest in rows.items():
        assert hashlib.sha256((PACKAGE / name).read_bytes()).hexdigest() == digest, name
