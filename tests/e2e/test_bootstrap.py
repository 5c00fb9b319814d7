# SPDX-License-Identifier: Apache-2.0
"""What ./bootstrap says of tests that cannot run where it is: no skipped stage is counted as passed."""
import os
import shutil
import subprocess

import job as jobs
import pytest

NO_HOSTS = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
FUNCTIONS = 'source <(sed "/^mkdir -p build/,\\$d" bootstrap) && hosts_tests'


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv (util-linux) is not installed")
@pytest.mark.parametrize("net, code", [("", 77), ("require", 1)])
def test_jobs_between_hosts__that_cannot_be_made_are_a_skipped_stage_or_a_failed_one_and_never_passed(net, code):
    """The stage of bootstrap, without the right to make namespaces."""
    command = [*(NO_HOSTS if os.geteuid() == 0 else []), "bash", "-c", FUNCTIONS, "./bootstrap"]
    done = subprocess.run(command, cwd=jobs.ROOT, env={**os.environ, "WEFT_NET": net}, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]  # what the summary shows as the reason
    assert "no namespaces here" in last or "is missing: install the package" in last, done.stdout
    assert ("WEFT_NET=require" in last) == (net == "require")
