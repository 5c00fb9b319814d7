# SPDX-License-Identifier: Apache-2.0
"""weft.engines.Receiver for a plain module of torch: every parameter is the tensor of its own name. The job is a real one."""
import weft
import weft.torch


class Receiver:
    way, notes = "direct", ["a double: parameters by their own names"]

    def __init__(self, model, endpoint, *, config=None, description=None, load=None):
        endpoint = weft.engines.Endpoint.of(endpoint)
        self.inference = weft.Inference(endpoint.controller, endpoint.rank_offset, own_memory=True,
                                        join_timeout_s=endpoint.join_timeout_s, update_timeout_s=endpoint.update_timeout_s)
        for name, parameter in model.named_parameters():
            tensor = weft.Tensor(name, weft.dtype_of(parameter.dtype).name, tuple(parameter.shape))
            self.inference.declare_param(name, parameter.dtype, parameter.shape, memory=parameter.detach())
            self.inference.declare_piece(tensor, name)
        self.join, self.receive = self.inference.join, self.inference.wait
        self.stats, self.close = self.inference.stats, self.inference.close

    @property
    def version(self):
        return self.inference.published

    @property
    def tainted(self):
        return self.inference.tainted
