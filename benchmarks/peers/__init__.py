"""The systems that are compared, each installed by its adapter and started as its users start it."""

from __future__ import annotations

from benchmarks.peers.base import System
from benchmarks.peers.llama_cpp import LlamaCppServer
from benchmarks.peers.openvino import OpenVinoGgufServer, OpenVinoServer
from benchmarks.peers.ours import EngineInProcess, PalmetteServer
from benchmarks.peers.vllm_cpu import VllmCpuServer

SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        PalmetteServer(),
        EngineInProcess(),
        LlamaCppServer(),
        VllmCpuServer(),
        OpenVinoServer(),
        OpenVinoGgufServer(),
    )
}
