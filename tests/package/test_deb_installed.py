# SPDX-License-Identifier: Apache-2.0
"""Debian packages in a bare Debian: apt finds all that they depend on, programs run, and removing them leaves nothing. It is the
base of the container image, in a container without rights (deploy/package/image.py); where there can be none this is skipped."""
import shutil

import image
import pytest
from conftest import DEBS, VERSION

# A container of the base, removed when the script in it has ended
CONTAINER = image.AGAIN + """
name=$1 base=$2 script=$3
shift 3
buildah from --quiet --pull=never --name "$name" "$base" >/dev/null || exit 125
again buildah run "$@" "$name" -- sh -euc "$script"
code=$?
buildah rm "$name" >/dev/null
exit $code
"""
INSTALL = """
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
find / -xdev -path /proc -prune -o -path /sys -prune -o -name '*weft*' -print | sort >/tmp/before
apt-get install -y -qq --no-install-recommends /debs/*.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
for one in weft weft-controller weft-worker; do $one --version; done
echo "$(ldd /usr/bin/weft /usr/bin/weft-worker /usr/lib/*/libweft.so.0.2 | grep -c 'not found') libraries are missing"
weft doctor >/tmp/doctor || test $? -le 1
grep -q shm /tmp/doctor
weft explain WEFT-E131 | grep -q WEFT-E131
test -e /usr/share/man/man1/weft-worker.1.gz
apt-get purge -y -qq PACKAGES >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
find / -xdev -path /proc -prune -o -path /sys -prune -o -name '*weft*' -print | sort | diff /tmp/before - && echo nothing is left
"""
SECONDS = 300


def test_packages__are_installed_by_apt_in_a_bare_debian_and_leave_nothing(debs, tmp_path):
    folder, name = image.FOLDER / f"debs-{tmp_path.name}", f"debs-{tmp_path.name}"
    try:
        image.check()
        with image.locked():
            image.prepare()
            image.make_base()
            image.run(["buildah", "rm", name], image.SHORT, **image.QUIET)  # of one that was ended in the midst
            folder.mkdir()
            for path in debs.values():
                shutil.copy(path, folder)
            out, err = tmp_path / "out", tmp_path / "err"
            with open(out, "w") as said, open(err, "w") as complaints, image.volumes() as options:
                script = INSTALL.replace("PACKAGES", " ".join(DEBS.values()))
                code = image.run(["sh", "-c", CONTAINER, "sh", name, image.BASE, script, *options,
                                  "--volume", f"{image.seen(folder)}:/debs:ro"], SECONDS, stdout=said, stderr=complaints)
    except image.Missing as reason:
        pytest.skip(str(reason))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    said = out.read_text()
    assert code == 0, said + err.read_text()
    lines = said.splitlines()
    assert lines[:3] == [f"{one} {VERSION}" for one in ("weft", "weft-controller", "weft-worker")], said
    assert lines[3:] == ["0 libraries are missing", "nothing is left"], said
