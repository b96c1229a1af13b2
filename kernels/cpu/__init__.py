"""Native kernels for CPUs: plain C++, compiled at first use; a whole step is one call that releases the GIL."""
