"""Run models bigger than memory: stream a packed checkpoint through a PyTorch model.

    import torch, trash_panda
    with torch.device("meta"):
        model = MyModel(config)
    model = trash_panda.load("model.panda", model).model

Importing needs no torch; calling load() does. Notes go to the logger "trash_panda".
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
from ._load import load
from ._native import __version__
from ._offloaded import Offloaded

_logging.getLogger(__name__).addHandler(_logging.NullHandler())

__all__ = [
    "CheckpointError",
    "DoesNotFitError",
    "IntegrityError",
    "MissingTensorsError",
    "Offloaded",
    "PinnedMemoryWarning",
    "PlanError",
    "ReleasedError",
    "StalePlanError",
    "TrashPandaError",
    "UnsupportedFormatError",
    "__version__",
    "load",
]
