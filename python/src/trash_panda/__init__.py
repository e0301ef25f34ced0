"""Run models bigger than memory: stream a packed checkpoint through a PyTorch model.

    import torch, trash_panda
    with torch.device("meta"):
        model = MyModel(config)
    model = trash_panda.load("model.panda", model).model

or, for a model of transformers or diffusers, with its planning and packing:

    model = trash_panda.from_pretrained("models/llama").model

pipeline() does that for the large parts of a pipeline of diffusers.

Importing needs no torch; loading does. Notes go to the logger "trash_panda".
"""

import logging as _logging
from typing import TYPE_CHECKING
from typing import Any as _Any

from ._block_groups import BlockGroup, find_blocks
from ._diffusion import pipeline
from ._earlier import install_offload, offload_blocks, stream_load
from ._errors import (
    CheckpointError,
    DoesNotFitError,
    IntegrityError,
    MissingTensorsError,
    PinnedMemoryWarning,
    PlanError,
    ReleasedError,
    StalePlanError,
    TrashPandaError,
    UnsupportedFormatError,
)
from ._from_pretrained import from_pretrained
from ._handle import OffloadHandle
from ._hardware import Hardware, detect_hardware, hwreport
from ._load import load
from ._load_report import LoadReport
from ._native import __version__
from ._offloaded import Offloaded
from ._pipeline import Pipeline, PipelineReport, Stage, StageReport
from ._plan import Plan, Prediction
from ._planning import plan
from ._stages import ReleaseReport, measure_activation_vram, release, stage
from ._tiers import BlockPlan, Tier
from ._units import module_nbytes, parse_bytes, parse_dtype

if TYPE_CHECKING:
    from ._fp8 import expand, quantize_fp8

_logging.getLogger(__name__).addHandler(_logging.NullHandler())

# Of modules that import torch.
_LAZY = {"expand": "_fp8", "quantize_fp8": "_fp8"}


def __getattr__(name: str) -> _Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_LAZY[name]}", __name__), name)


__all__ = [
    "BlockGroup",
    "BlockPlan",
    "CheckpointError",
    "DoesNotFitError",
    "Hardware",
    "IntegrityError",
    "LoadReport",
    "MissingTensorsError",
    "OffloadHandle",
    "Offloaded",
    "PinnedMemoryWarning",
    "Pipeline",
    "PipelineReport",
    "Plan",
    "PlanError",
    "Prediction",
    "ReleaseReport",
    "ReleasedError",
    "Stage",
    "StageReport",
    "StalePlanError",
    "Tier",
    "TrashPandaError",
    "UnsupportedFormatError",
    "__version__",
    "detect_hardware",
    "expand",
    "find_blocks",
    "from_pretrained",
    "hwreport",
    "install_offload",
    "load",
    "measure_activation_vram",
    "module_nbytes",
    "offload_blocks",
    "parse_bytes",
    "parse_dtype",
    "pipeline",
    "plan",
    "quantize_fp8",
    "release",
    "stage",
    "stream_load",
]
