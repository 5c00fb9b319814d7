# SPDX-License-Identifier: Apache-2.0
"""Controller(delta=True): what differs is sent, and all of it is there."""
import numpy
import pair

import weft


def test_versions__of_which_one_value_differs_are_whole_and_hardly_sent():
    running = weft.Controller(train="world=1", infer="engines=1,tp=1", delta=True)
    try:
        with pair.trainer(running.address, transport="tcp", nic="lo") as trainer, \
                pair.inference(running.address, transport="tcp", nic="lo") as engine:
            join = pair.Thread(trainer.join)
            engine.join()
            join.done()
            tensors = pair.values(1)
            for version in range(1, 6):
                tensors["q"][version, 3] = 0.5 / version
                wait = pair.Thread(engine.wait, version)
                trainer.publish(version, tensors)
                assert wait.done() == version
                with engine.read() as snapshot:
                    found = numpy.frombuffer(snapshot["qk"].buffer, "f4").reshape(96, 32)
                    assert (found == numpy.concatenate([tensors["q"], tensors["k"]])).all()
            stats = trainer.stats()
            assert stats["bytes"] == 5 * 96 * 32 * 4 and stats["saved_bytes"] > 0.95 * 4 * 96 * 32 * 4
    finally:
        running.stop()
