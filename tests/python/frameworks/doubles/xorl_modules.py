# SPDX-License-Identifier: Apache-2.0
"""What weft.xorl touches of xorl, written from its sources (4d8c620): the abstract backend with its configuration, create_backend,
a handler that has imported it by name, and the handler's order of calls. xorl on PyPI (0.1.1) has none of it."""
import abc
import dataclasses

from put import module


@dataclasses.dataclass
class EndpointConfig:
    host: str
    port: int
    world_size: int = 1


@dataclasses.dataclass
class TransportConfig:
    endpoints: list
    master_address: str = "localhost"
    master_port: int = 0
    group_name: str = "weight_sync_group"
    buffer_size_mb: int = 1024
    device: str = "cpu"
    training_world_size: int = 1
    training_rank: int = 0
    backend_config: dict = dataclasses.field(default_factory=dict)


class WeightTransportBackend(abc.ABC):
    def __init__(self, config):
        self.config, self.endpoint_results = config, []

    @abc.abstractmethod
    def initialize(self): ...

    @abc.abstractmethod
    def destroy(self, *, complete_receiver=True): ...

    @abc.abstractmethod
    def transfer_bucket(self, bucket, *, src_rank=0, flush_cache=False, weight_version=None): ...


def create_backend(method, config, **options):
    raise ValueError(f"Unknown weight sync backend: {method!r}.")


def install():
    module("xorl.server.weight_sync.backends.base", WeightTransportBackend=WeightTransportBackend, TransportConfig=TransportConfig)
    module("xorl.server.weight_sync.backends", create_backend=create_backend)
    return module("xorl.server.weight_sync.handler", create_backend=create_backend)


def sync(handler, client, config, buckets, weight_version=None, flush_cache=False, fail_after=None):
    """The handler's order for a method that is not its p2p: where streaming fails it resumes and destroys."""
    backend = handler.create_backend("nccl_broadcast", config)
    assert backend.sender_ranks == {0} and not backend.supports_direct_ep_transfer and not backend.supports_direct_pp_transfer
    assert backend.initialize()
    client.pause_generation("retract")
    try:
        for number, bucket in enumerate(buckets):
            if number == fail_after:
                raise RuntimeError("unsharding failed")
            last = number == len(buckets) - 1
            backend.transfer_bucket(bucket, src_rank=0, flush_cache=flush_cache and last,
                                    weight_version=weight_version if last else None)
            for _, tensor in bucket:
                tensor.fill_(-7)  # its memory is used again
        backend.flush_pending_transfers()
        backend.destroy()
    except Exception:
        try:
            client.continue_generation()
        except Exception as refused:
            sync.refused = refused
        backend.destroy(complete_receiver=False)
        raise
    client.continue_generation()
    return backend
