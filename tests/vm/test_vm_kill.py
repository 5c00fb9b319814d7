# SPDX-License-Identifier: Apache-2.0
"""kill -9 of trainers and inference ranks of a job over verbs: who survives names the dead one, nothing
hangs, a new job works at once; or, with --on-loss continue, whose engine it was not goes on. WEFT_VM_KILLS changes how many."""
import os

from test_vm_job import inside

KILLS = int(os.environ.get("WEFT_VM_KILLS", "3"))
LOSSES = max(1, KILLS // 3)
SEED = int(os.environ.get("WEFT_VM_SEED", "1"))


def test_kill__of_any_worker_is_named_by_all_and_the_next_job_works():
    said = inside("kills", KILLS, SEED, seconds=200 + 45 * KILLS)
    assert f"{KILLS} kills" in said and "0 complaints" in said, said


def test_loss__of_a_trainer_costs_a_version_and_another_one_takes_its_place():
    assert f"{LOSSES} trainers lost, 0 wrong" in inside("trainers", LOSSES, SEED, seconds=200 + 90 * LOSSES)


def test_loss__of_a_rank_takes_its_engine_out_and_the_other_does_every_update():
    assert f"{LOSSES} losses, 0 wrong" in inside("losses", LOSSES, SEED, seconds=200 + 90 * LOSSES)
