# SPDX-License-Identifier: Apache-2.0
"""For each process of a real server on a machine without a GPU: torchvision declares operations that a torch of another build has
not, and SGLang's checker of weights takes what it compares to a GPU and waits for it."""
import importlib.util

if importlib.util.find_spec("torch") is not None and importlib.util.find_spec("torchvision") is not None:
    import torch

    register = torch.library.register_fake
    torch.library.register_fake = lambda op, *rest, **named: (
        (lambda function: function) if isinstance(op, str) and op.startswith("torchvision::") else register(op, *rest, **named))
    import torchvision
    import torchvision.transforms.v2  # noqa: F401

    torch.library.register_fake = register
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    torch.cuda.synchronize = lambda *_: None
