# SPDX-License-Identifier: Apache-2.0
"""The scripts for Slurm and MPI, run as those run them: a stand-in for srun or mpirun starts the processes, each with the
variables that the real one gives it, and every byte is compared. Both are run on a host of their own."""
import pathlib
import re
import subprocess

import job as jobs
import pytest
from hosts import Hosts

TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"
SIZE = 4
SCRIPTS = {"slurm": jobs.ROOT / "deploy/slurm/weft.sbatch", "mpi": jobs.ROOT / "deploy/mpi/weft-mpirun"}
# What each says to task N of a job of SIZE on one node
SRUN = "SLURM_PROCID=$n SLURM_NTASKS=%(size)d SLURM_LOCALID=$n SLURM_NODEID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=%(size)d"
OPENMPI = "OMPI_COMM_WORLD_RANK=$n OMPI_COMM_WORLD_SIZE=%(size)d OMPI_COMM_WORLD_LOCAL_RANK=$n OMPI_COMM_WORLD_LOCAL_SIZE=%(size)d " \
          "OMPI_COMM_WORLD_NODE_RANK=$n PMIX_RANK=$n PMIX_NAMESPACE=1"
MPICH = "PMI_RANK=$n PMI_SIZE=%(size)d PMI_FD=9 MPI_LOCALRANKID=$n MPI_LOCALNRANKS=%(size)d"
LAUNCHERS = {
    # name: (script, program, what it gives each task, what the script itself is started with, the rank's source)
    "slurm": ("slurm", "srun", SRUN, {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0", "SLURM_NTASKS": str(SIZE)}, "SLURM_PROCID"),
    "openmpi": ("mpi", "mpirun", OPENMPI, {}, "OMPI_COMM_WORLD_RANK"),
    "mpich": ("mpi", "mpirun", MPICH, {}, "PMI_RANK"),
    # mpirun inside of a batch script: Slurm numbers its agents, one a node
    "openmpi in slurm": ("mpi", "mpirun", OPENMPI + " SLURM_PROCID=0 SLURM_NTASKS=1", {"SLURM_JOB_ID": "4711"}, "OMPI_COMM_WORLD_RANK"),
    "mpich in slurm": ("mpi", "mpirun", MPICH + " SLURM_PROCID=0 SLURM_NTASKS=1", {"SLURM_JOB_ID": "4711"}, "PMI_RANK"),
}
STAND_IN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do case $1 in -n) shift 2 ;; *) shift ;; esac; done
for n in $(seq 0 %(last)d); do
  env %(given)s "$@" --checksums --digests %(folder)s/rank-$n.digests 2>%(folder)s/rank-$n.err &
  tasks="$tasks $!"
done
code=0
for task in $tasks; do wait $task || code=$?; done
exit $code
"""


def launch(folder, name, train=TRAIN):
    script, program, given, outer, _ = LAUNCHERS[name]
    model = jobs.make_model(folder, "qwen2")
    stand_in = folder / "bin" / program
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN % {"last": SIZE - 1, "folder": folder, "given": given % {"size": SIZE}})
    stand_in.chmod(0o755)
    variables = {"PATH": f"{stand_in.parent}:{jobs.BIN}:/usr/bin:/bin", "HOME": str(folder), "WEFT_MODEL": str(model), "WEFT_TRAIN": train,
                 "WEFT_INFER": INFER, "WEFT_UPDATES": "2", "WEFT_CHECKPOINT": str(model), "WEFT_TRANSPORT": "shm",
                 "WEFT_HEAD": "127.0.0.1", **outer}
    with Hosts(1) as (host,):
        host.run("hostname", "localhost")
        done = host.run("env", "-i", *(f"{key}={value}" for key, value in variables.items()), SCRIPTS[script],
                        *(["-n", SIZE] if script == "mpi" else []), check=False, timeout=60)
    return done, model


@pytest.mark.parametrize("name", LAUNCHERS)
def test_script__delivers_every_byte_with_its_launchers_variables(nodes, tmp_path, name):
    done, model = launch(tmp_path, name)
    said = done.stderr + "".join(path.read_text() for path in sorted(tmp_path.glob("rank-*.err")))
    assert done.returncode == 0, said
    job = jobs.Job(tmp_path / "job", model, TRAIN, INFER)
    want = jobs.expected(model, INFER)
    job.folder = tmp_path
    for rank in range(2):
        for version in (1, 2):
            assert job.digests(rank, f"rank-{2 + rank}")[version] == want.digests(version)[rank]
    assert f"rank 3/4 (from {LAUNCHERS[name][4]}), inference 1/2" in said
    assert not list((tmp_path / ".weft").iterdir())  # the key is gone


def test_script__of_another_size_than_its_layouts_ends_with_one_clear_code(nodes, tmp_path):
    done, _ = launch(tmp_path, "slurm", train="world=4,source=gathered")
    assert done.returncode == 78 and "stopped by SIGTERM" in done.stderr, done.stderr
    assert "4 workers were launched, but --train and --infer have 4 trainers and 2 inference ranks, 6 in all" in \
        (tmp_path / "rank-0.err").read_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_script__says_what_it_lacks(tmp_path, name):
    done = subprocess.run([SCRIPTS[name]], env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode and re.search(r"WEFT_CHECKPOINT: a folder that all \w+ see", done.stderr)
    assert not list(pathlib.Path(tmp_path).iterdir())
