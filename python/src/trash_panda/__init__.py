"""Run models bigger than memory: stream a packed checkpoint through a PyTorch model.

    import torch, trash_panda
    with torch.device("meta"):
        model = MyModel(config)
    model = trash_panda.load("model.panda", model).model

or, for a model of transformers or diffusers, with its planning and packing:

    model = trash_panda.from_pretrained("models/llama").model

Importing needs no torch; loading does. Notes go to the logger "trash_panda".
"""

import logging as _logging

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
from ._load import load
from ._native import __version__
from ._offloaded import Offloaded
from ._plan import BlockPlan, Plan, Prediction, Tier

_logging.getLogger(__name__).addHandler(_logging.NullHandler())

__all__ = [
    "BlockPlan",
    "CheckpointError",
    "DoesNotFitError",
    "IntegrityError",
    "MissingTensorsError",
    "OffloadHandle",
    "Offloaded",
    "PinnedMemoryWarning",
    "Plan",
    "PlanError",
    "Prediction",
    "ReleasedError",
    "StalePlanError",
    "Tier",
    "TrashPandaError",
    "UnsupportedFormatError",
    "__version__",
    "from_pretrained",
    "load",
]
