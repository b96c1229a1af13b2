"""Which backend computes. The only place that may ask torch.cuda. Called by runtime/models and the worker."""

from __future__ import annotations

from typing import Literal

import torch

from palmette.kernels.portable import PortableKernels
from palmette.kernels.protocol import Kernels
from palmette.kernels.reference import ReferenceKernels

KernelName = Literal["auto", "cpu", "portable", "reference"]


def select(name: KernelName, device: torch.device | str = "cpu") -> Kernels:
    """A new backend for a device. Raises ValueError for a name or a device that has none."""
    device = torch.device(device)
    if device.type != "cpu":
        raise ValueError(f"No kernels for device {str(device)!r} yet; use 'cpu'.")
    if name == "reference":
        return ReferenceKernels()
    if name in ("auto", "portable"):
        return PortableKernels()
    raise ValueError(f"kernels={name!r} is not one of 'auto', 'portable', 'reference'.")
