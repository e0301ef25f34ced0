"""Builds the model that a folder's config describes, without its weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ._building import default_dtype, parameters_on_meta
from ._errors import CheckpointError, UnsupportedFormatError, make_error


def build_empty(folder: Path, cls: Any, dtype: torch.dtype | None) -> nn.Module:
    """The model in eval mode, its parameters on the meta device, where they take no memory.

    Buffers, and tensors that modules keep without registering them, have their values.

    :param cls: the class, one of transformers' Auto classes, or the name of either; None: as the
        config says.
    :param dtype: of the weights; None: as the config says.
    """
    config = _read_config(folder)
    build = _build_diffusers if "_class_name" in config else _build_transformers
    with torch.random.fork_rng(devices=[]), parameters_on_meta():
        model = build(folder, config, cls, dtype)
    return model.eval()


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        is_pipeline = (folder / "model_index.json").exists()
        raise make_error(
            "missing",
            f"{folder} has no config.json",
            'it is a pipeline: choose a part, such as subfolder="transformer"'
            if is_pipeline
            else "build the model yourself and use trash_panda.load()",
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"can't read {file}: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{file} holds no JSON object")
    return config


def _build_diffusers(
    folder: Path, config: dict[str, Any], cls: Any, dtype: torch.dtype | None
) -> nn.Module:
    import diffusers

    chosen = _class(diffusers, cls, [str(config["_class_name"])], folder)
    with default_dtype(dtype or torch.float32):
        model: nn.Module = chosen.from_config(chosen.load_config(folder))
    if dtype is not None:
        _convert_stored(model, dtype)
    return model


def _convert_stored(model: nn.Module, dtype: torch.dtype) -> None:
    """Gives float tensors the dtype as diffusers does: those that checkpoints hold.

    Tables that a model computes itself keep theirs, and so does what it keeps in fp32.
    """
    kept = set(getattr(model, "_keep_in_fp32_modules", None) or ())
    for path, module in model.named_modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                is_stored = name not in module._non_persistent_buffers_set
                is_kept = not kept.isdisjoint([*path.split("."), name])
                if tensor is not None and tensor.is_floating_point() and is_stored and not is_kept:
                    tensor.data = tensor.data.to(dtype)


def _build_transformers(
    folder: Path, config: dict[str, Any], cls: Any, dtype: torch.dtype | None
) -> nn.Module:
    import transformers

    chosen = _class(transformers, cls, [*(config.get("architectures") or ()), "AutoModel"], folder)
    own = getattr(chosen, "config_class", None)
    settings = (own or transformers.AutoConfig).from_pretrained(folder)
    if hasattr(settings, "quantization_config"):
        # Weights are expanded as they stream, so the modules are the ordinary ones.
        del settings.quantization_config
    options = {} if dtype is None else {"dtype": dtype}
    build: Callable[..., Any] = getattr(chosen, "from_config", None) or chosen._from_config
    model = build(settings, **options)
    if model.can_generate() and (folder / "generation_config.json").exists():
        model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    model.config._name_or_path = model.name_or_path = str(folder)
    result: nn.Module = model
    return result


def _class(library: Any, wanted: Any, names: list[str], folder: Path) -> Any:
    if wanted is not None and not isinstance(wanted, str):
        return wanted
    for name in names if wanted is None else [wanted]:
        found = getattr(library, name, None)
        if found is not None:
            return found
    raise UnsupportedFormatError(
        f"{folder}: {library.__name__} {library.__version__} has no class {wanted or names[0]}; "
        "give the class as cls=, or build the model yourself and use trash_panda.load()"
    )
