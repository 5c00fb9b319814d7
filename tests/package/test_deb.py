# SPDX-License-Identifier: Apache-2.0
"""Debian packages: what lintian says, what is in which, what each needs, and that a program is built and run with them."""
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess

import changelog
import pytest
from conftest import BIN, DEBS, PACKAGE, ROOT, VERSION, run

MULTIARCH = run("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip()
PROGRAM = '#include <stdio.h>\n#include <weft.h>\nint main(void) { return puts(weft_version_text()) < 0; }\n'
LISTS = """cmake_minimum_required(VERSION 3.25)
project(main C)
find_package(weft 0.2 CONFIG REQUIRED)
add_executable(main main.c)
target_link_libraries(main weft::weft)
"""


def files_of(deb):
    """{path: (kind and rights, size, where a link leads)} of its files and links; folders are left out."""
    said = run("dpkg-deb", "-c", deb)
    rows = [re.fullmatch(r"(\S{10}) root/root\s+(\d+) \S+ \S+ \./(.*?)(?: -> (.*))?", line) for line in said.splitlines()]
    assert all(rows), said
    return {row[3]: (row[1], int(row[2]), row[4]) for row in rows if not row[1].startswith("d")}


def field(deb, name):
    return run("dpkg-deb", "-f", deb, name).strip()


def names(text):
    return {re.split(r"[ (]", one.strip())[0] for one in text.split(",") if one.strip()}


def alone(path):
    """What packages have beside an install: copyright, changelogs, and overrides of lintian."""
    return re.fullmatch(r"usr/share/doc/(?:libweft0\.2|libweft-dev|weft)/(?:copyright|changelog\.gz|changelog\.Debian\.gz)"
                        r"|usr/share/lintian/overrides/[\w.-]+", path)


def test_lintian__has_nothing_to_say_not_even_as_information(debs):
    said = subprocess.run(["lintian", "--allow-root", "--display-info", "--pedantic", "--no-tag-display-limit", *debs.values()],
                          capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "")


def test_lintian__would_have_something_to_say(debs, tmp_path):
    run("dpkg-deb", "-R", debs["development"], tmp_path / "raw")
    (tmp_path / "raw/usr/share/doc/libweft-dev/copyright").unlink()
    run("dpkg-deb", "-b", tmp_path / "raw", tmp_path / "wrong.deb")
    said = subprocess.run(["lintian", "--allow-root", tmp_path / "wrong.deb"], capture_output=True, text=True, check=False)
    assert said.returncode != 0 and "no-copyright-file" in said.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "deploy/package/overrides").iterdir()), ids=lambda path: path.name)
def test_override__has_its_reason_above_it(path):
    lines = path.read_text().splitlines()
    for above, line in zip(["", *lines], lines):
        assert line.startswith("# ") or (line.startswith(f"{DEBS[path.name]}: ") and above.startswith("# ")), line


def test_packages__share_no_file_and_are_together_what_is_installed(debs, tmp_path):
    run("cmake", "--install", PACKAGE / "tree", "--prefix", "/usr", env={"DESTDIR": str(tmp_path)})
    installed = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_symlink() or not path.is_dir()}
    packed = {component: set(files_of(deb)) for component, deb in debs.items()}
    assert sum(map(len, packed.values())) == len(set().union(*packed.values()))
    added = {path for path in set().union(*packed.values()) if alone(path)}
    assert len(added) == 3 * len(DEBS) + len(list((ROOT / "deploy/package/overrides").iterdir()))
    assert set().union(*packed.values()) - added == installed


def test_packages__have_what_an_ordinary_install_has_in_the_folders_of_Debian(debs, tmp_path):
    """The tree of packages and the one that is tested are configured apart; they install the same files."""
    run("cmake", "--install", BIN, "--prefix", tmp_path / "usr")

    def plain(path):
        return path.replace(f"lib/{MULTIARCH}/", "lib/").replace("zsh/vendor-completions/", "zsh/site-functions/")

    ordinary = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_symlink() or not path.is_dir()}
    assert {plain(path) for deb in debs.values() for path in files_of(deb) if not alone(path)} == ordinary


def test_packages__are_split_into_library_headers_and_programs(debs):
    paths = {component: set(files_of(deb)) for component, deb in debs.items()}
    library = {path for path in paths["library"] if not alone(path)}
    assert library == {f"usr/lib/{MULTIARCH}/libweft.so.0.2", f"usr/lib/{MULTIARCH}/libweft.so.{VERSION}"}
    assert {"usr/include/weft.h", f"usr/lib/{MULTIARCH}/libweft.so", f"usr/lib/{MULTIARCH}/pkgconfig/weft.pc",
            f"usr/lib/{MULTIARCH}/cmake/weft/weftConfig.cmake"} <= paths["development"]
    assert not [path for path in paths["development"] if path.startswith(("usr/bin", "usr/share/man"))]
    assert {"usr/bin/weft", "usr/bin/weft-controller", "usr/bin/weft-worker", "usr/share/man/man1/weft-worker.1.gz",
            "usr/share/bash-completion/completions/weft", "usr/share/zsh/vendor-completions/_weft",
            "usr/share/doc/weft/docs/install.md"} <= paths["tools"]
    assert not [path for path in paths["tools"] if path.startswith(("usr/lib/", "usr/include"))]


def test_packages__have_rights_that_everybody_expects(debs):
    for deb in debs.values():
        for path, (rights, _, _) in files_of(deb).items():
            program = path.startswith("usr/bin/") or re.fullmatch(r"usr/share/weft/deploy/\w+\.py", path)
            wanted = "lrwxrwxrwx" if rights[0] == "l" else "-rwxr-xr-x" if program else "-rw-r--r--"
            assert rights == wanted, path


def test_dependencies__are_those_that_the_install_page_names(debs):
    page = (ROOT / "docs/install.md").read_text()

    def row(start):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {start}")]
        words = [word for text in re.findall(r"`([^`]+)`", line.split("|")[2]) for word in text.split()]
        return {word for word in words if word.startswith(("lib", "ibverbs"))}

    linked = names(field(debs["library"], "Depends"))
    assert linked - {"libc6", "libstdc++6", "libgcc-s1"} == row("to run |")
    opened = names(field(debs["library"], "Recommends")) | names(field(debs["library"], "Suggests"))
    assert opened == row("to run, where")


def test_dependencies__of_each_other_are_of_this_version_alone(debs):
    assert field(debs["development"], "Depends") == f"libweft0.2 (= {VERSION}-1)"
    assert f"libweft0.2 (= {VERSION}-1)" in field(debs["tools"], "Depends")
    assert {field(deb, "Version") for deb in debs.values()} == {f"{VERSION}-1"}
    control = run("dpkg-deb", "-I", debs["library"], "shlibs")
    assert control == f"libweft 0.2 libweft0.2 (>= {VERSION})\n"
    assert run("dpkg-deb", "-I", debs["library"], "triggers") == "activate-noawait ldconfig\n"


def test_binaries__are_stripped_know_no_folder_and_bind_at_once(root):
    binaries = [*(root / "usr/bin").iterdir(), root / f"usr/lib/{MULTIARCH}/libweft.so.{VERSION}"]
    assert len(binaries) == 4
    for path in binaries:
        headers, dynamic = run("readelf", "-SlW", path), run("readelf", "-d", path)
        assert ".debug_info" not in headers and ".symtab" not in headers and "GNU_RELRO" in headers, path
        assert "RPATH" not in dynamic and "RUNPATH" not in dynamic and "NOW" in dynamic, path
        assert str(ROOT).encode() not in path.read_bytes(), path


def test_sums__of_every_file_are_right(debs, root):
    for deb in debs.values():
        for line in run("dpkg-deb", "-I", deb, "md5sums").splitlines():
            digest, _, name = line.partition("  ")
            assert hashlib.md5((root / name).read_bytes()).hexdigest() == digest, name


@pytest.fixture(scope="session")
def environment(root):
    """Where programs of the unpacked packages find their library, and pkg-config its file."""
    return {"LD_LIBRARY_PATH": str(root / f"usr/lib/{MULTIARCH}"), "PATH": f"{root}/usr/bin:{os.environ['PATH']}",
            "PKG_CONFIG_PATH": str(root / f"usr/lib/{MULTIARCH}/pkgconfig")}


def test_programs__of_the_packages_run(root, environment):
    for name in ("weft", "weft-controller", "weft-worker"):
        assert VERSION in run(root / "usr/bin" / name, "--version", env=environment)
    job = ["--model", "Qwen2.5-0.5B", "--train", "world=2", "--infer", "tp=2"]
    assert "988,065,536" in run(root / "usr/bin/weft", "route", "plan", *job, env=environment)


@pytest.mark.parametrize("way", ["pkg-config", "cmake"])
def test_program__is_built_with_the_packages(root, environment, tmp_path, way):
    (tmp_path / "main.c").write_text(PROGRAM)
    if way == "pkg-config":
        flags = run("pkg-config", "--cflags", "--libs", "weft", env=environment).split()
        run("gcc", tmp_path / "main.c", "-o", tmp_path / "main", *flags)
    else:
        (tmp_path / "CMakeLists.txt").write_text(LISTS)
        run("cmake", "-S", tmp_path, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={root}/usr", f"-DCMAKE_LIBRARY_ARCHITECTURE={MULTIARCH}")
        run("cmake", "--build", tmp_path)
    assert VERSION in run(tmp_path / "main", env=environment)


def test_packages__are_installed_and_removed_by_dpkg(debs, tmp_path):
    """Into a root of its own: what dpkg itself has to say of them, without its check of what they depend on."""
    if os.geteuid() != 0:
        pytest.skip("dpkg installs as root alone")
    for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text("")
    dpkg = ["dpkg", f"--root={tmp_path}", "--force-depends", "--force-not-root", f"--log={tmp_path}/log"]
    run(*dpkg, "--install", *debs.values())
    states = run(*["dpkg-query", f"--admindir={tmp_path}/var/lib/dpkg", "-W", "-f", "${Package} ${Status}\\n"]).splitlines()
    assert sorted(states) == sorted(f"{name} install ok {state}" for name, state in
                                    zip(DEBS.values(), states_of(states)))
    assert (tmp_path / "usr/bin/weft").exists()
    run(*dpkg, "--purge", *DEBS.values())
    assert not (tmp_path / "usr/bin/weft").exists() and not list(tmp_path.glob("usr/lib/*/libweft*"))


def states_of(states):
    """Installed, or waiting for the trigger of ldconfig, which has nobody to be run by in an empty root."""
    found = dict(line.split(" ", 1) for line in states)
    kinds = [found[name].rsplit(" ", 1)[1] for name in DEBS.values()]
    assert set(kinds) <= {"installed", "triggers-awaited"}
    return kinds


def test_packages__made_again_elsewhere_are_the_same_bytes(debs, tmp_path):
    seconds = (PACKAGE / "tree/package/seconds").read_text().strip()
    run(ROOT / "deploy/package/debian", tmp_path / "another folder", BIN, env={"SOURCE_DATE_EPOCH": seconds})
    again = {path.name: path for path in (tmp_path / "another folder").glob("*.deb")}
    assert sorted(again) == sorted(path.name for path in debs.values())
    for deb in debs.values():
        assert again[deb.name].read_bytes() == deb.read_bytes(), f"diff -r what dpkg-deb -R makes of {deb} and {again[deb.name]}"
    shutil.rmtree(tmp_path / "another folder")


def test_changelogs__are_of_this_version_and_of_CHANGELOG(root):
    for name in DEBS.values():
        folder = root / "usr/share/doc" / name
        assert gzip.decompress((folder / "changelog.gz").read_bytes()) == (ROOT / "CHANGELOG.md").read_bytes()
        said = gzip.decompress((folder / "changelog.Debian.gz").read_bytes()).decode()
        assert said.startswith(f"weft ({VERSION}-1) unstable; urgency=medium\n") and "\nweft (0.1.0-1) " in said
        for path in folder.glob("*.gz"):
            assert path.read_bytes()[4:9] == b"\0\0\0\0\x02", f"{path}: gzip -9n"  # no time, most compressed


def test_changelog__of_a_version_that_CHANGELOG_does_not_begin_with_is_refused():
    why = "the newest version is '2.0', and the one to be packaged 2.1: give it a heading '## 2.1 - DATE'"
    with pytest.raises(ValueError, match=re.escape(why)):
        changelog.debian("## 2.0 - 2030-01-01\n", "2.1", "1", "A <a@b>", 0)


@pytest.mark.parametrize("arguments, why", [
    ([], "no OUT"),
    (["out", "nowhere"], "nowhere was not built with ninja: build it"),
])
def test_debian__says_what_is_wrong_with_its_arguments(tmp_path, arguments, why):
    done = subprocess.run([ROOT / "deploy/package/debian", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and why in done.stderr
    assert pathlib.Path(tmp_path / "out/tree/.ninja_log").exists() is False
