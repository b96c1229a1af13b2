"""A namespace of the radix cache, composed in one place: requests of different namespaces never share pages.

KV depends on the model and the adapter that computed it; the salt keeps tenants apart who must not learn from
timing what the other has sent.
"""

from __future__ import annotations


def namespace(salt: str = "", *, adapter: str = "", model: str = "") -> str:
    """Different triples give different namespaces, whatever the parts contain; three empty parts give ""."""
    if not (salt or adapter or model):
        return ""
    return f"{len(model)}:{model}{len(adapter)}:{adapter}{salt}"
