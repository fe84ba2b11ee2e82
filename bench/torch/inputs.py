"""The parameters and tokens that `bench/torch.ts` wrote, and the training step that every decoder takes."""

import math

import numpy as np
import torch


def read_parameters(settings, device="cpu"):
    """The parameters by path, in the order of the other side's tree."""
    values = np.fromfile(settings["parameters"], dtype="<f4")
    read, start = {}, 0
    for name, shape in settings["shapes"]:
        count = math.prod(shape)
        part = torch.from_numpy(values[start : start + count]).reshape(shape)
        read[name] = part.to(device, copy=True).requires_grad_()
        start += count
    return read


def read_tokens(settings, device="cpu"):
    """The tokens of a batch, one more of each row than the model reads."""
    tokens = torch.from_numpy(np.fromfile(settings["tokens"], dtype="<i4").astype("int64"))
    return tokens.reshape(settings["batch"], settings["sequence"] + 1).to(device)


def make_step(parameters, loss_of):
    """One AdamW step, with the settings of `adamw` in `bench/decoder.ts`; it returns the loss."""
    optimiser = torch.optim.AdamW(
        parameters.values(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(parameters)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step
