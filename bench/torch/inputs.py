"""Reads the parameters and tokens that `bench/torch.ts` wrote."""

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
