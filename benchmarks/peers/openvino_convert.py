"""Writes a GGUF file in OpenVINO's own format with 8-bit weights: runs in .venvs/openvino, started by openvino.py.

OpenVINO GenAI reads the file and saves what it read; NNCF compresses that, without data, to int8 with a scale and a
zero point for each output channel. `optimum-cli export openvino --weight-format int8` comes to the same form, but wants
torch and transformers for it. Imports nothing of ours.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import nncf  # type: ignore[import-not-found]
import openvino  # type: ignore[import-not-found]
import openvino_genai as genai  # type: ignore[import-not-found]

SAVED = "openvino_model"


def convert(model: Path, folder: Path) -> None:
    """`folder` holds model and tokenizers after. `model`: GGUF of float32 or float16."""
    folder.mkdir(parents=True)
    link = folder / "model.gguf"  # what was read is saved beside the file that it was read from
    link.symlink_to(model)
    genai.LLMPipeline(str(link), "CPU", enable_save_ov_model=True)
    link.unlink()
    read = openvino.Core().read_model(folder / f"{SAVED}.xml")
    compressed = nncf.compress_weights(read, mode=nncf.CompressWeightsMode.INT8_ASYM)
    openvino.save_model(compressed, folder / "compressed.xml", compress_to_fp16=False)
    del read, compressed  # they map the files that are replaced now
    for suffix in (".xml", ".bin"):
        (folder / f"compressed{suffix}").replace(folder / f"{SAVED}{suffix}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    convert(arguments.model, arguments.folder)
