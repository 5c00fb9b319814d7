# SPDX-License-Identifier: Apache-2.0
"""The conformance suite over real queue pairs: the same checks as every other provider's."""
from machine import BIN, vm


def test_conformance__verbs_on_the_kernels_own_stack_passes_the_whole_suite():
    done = vm("--timeout", 900, "--env", "WEFT_TEST_SLOW=10", "--env", "WEFT_SOAK", "--", BIN / "tests" / "test_conformance_verbs", timeout=1100)
    said = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    # 77 would mean that the program found no device: here that is a failure
    assert done.returncode == 0, said[-6000:]
    assert said.count("[  PASSED  ]") >= 4 and "FAILED" not in said, said[-6000:]
