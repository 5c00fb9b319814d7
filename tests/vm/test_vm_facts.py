# SPDX-License-Identifier: Apache-2.0
"""What the verbs path reads of a machine with RDMA, and what it says when a piece of it is missing."""
import pytest
from machine import passes, program

FACTS = program("tests", "test_verbs_facts")
RESOLVER = program("tests", "test_verbs_resolver")


def skipped(out):
    return {line.split()[-1] for line in out.splitlines() if line.startswith("[  SKIPPED ] test_")
            and "listed" not in line}


# first all is there; then each step takes one more piece away, from the driver library down to the kernel
STEPS = f"""
echo "== all"; {FACTS} && {RESOLVER} 2>&1 || exit 1
say() {{ echo "== $1"; shift; "$@" 2>&1 | grep -a "RDMA devices; "; }}
mount -t tmpfs none /etc/libibverbs.d; say provider {FACTS}; umount /etc/libibverbs.d
chmod 660 /dev/infiniband/uverbs*
say permission setpriv --reuid 1000 --regid 1000 --clear-groups {FACTS}
rm /dev/infiniband/uverbs*; say node {FACTS}
rm /dev/infiniband/rdma_cm; {RESOLVER} 2>&1 | grep -a "OK.*without_the_node"
rdma link del rxe0; rdma link del rxe1; say device {FACTS}
"""


@pytest.fixture(scope="module")
def said():
    return dict(part.split("\n", 1) for part in passes(STEPS).split("== ")[1:])


def test_facts_and_paths__are_read_where_there_is_rdma(said):
    assert "  2 RDMA devices; \n" in said["all"]
    assert skipped(said["all"]) == {"test_without_the_node__librdmacm_is_named_with_it"}


def test_missing_pieces__have_their_own_messages(said):
    assert "libibverbs has no driver library for it: install ibverbs-providers" in said["provider"]
    assert "uid 1000 (gid 1000) may not open /dev/infiniband/uverbs" in said["permission"]
    assert "which is crw-rw---- root:root" in said["permission"]
    assert "there is no /dev/infiniband/uverbs" in said["node"]
    assert "test_without_the_node__librdmacm_is_named_with_it" in said["node"]
    assert "there is no RDMA device: /sys/class/infiniband is empty" in said["device"]
