"""Plain torch for any CPU."""

from palmette.kernels.portable.kernels import PortableKernels

__all__ = ["PortableKernels"]
