"""The definitions that every other backend is compared with."""

from palmette.kernels.reference.kernels import ReferenceKernels

__all__ = ["ReferenceKernels"]
