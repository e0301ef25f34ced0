"""from_pretrained(): from a folder or the Hugging Face cache to a streaming model, in one call."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._folders import find_model
from ._load import load, prepare_load, stored_plan
from ._offloaded import Offloaded
from ._pack import Pack, StoredPlan
from ._packing import ensure_pack, is_fresh
from ._plan import Plan
from ._planning import plan_beside
from ._torch import require_torch

if TYPE_CHECKING:
    import torch

    from ._keys import KeyMap

_REPACK = ("auto", "never", "require")


def from_pretrained(
    model_id_or_dir: str | os.PathLike[str],
    *,
    cls: Any = None,
    subfolder: str | None = None,
    plan: Plan | str | os.PathLike[str] = "auto",
    repack: str = "auto",
    dtype: str | torch.dtype = "bf16",
    device: str | torch.device | None = None,
    local_files_only: bool = True,
    key_map: KeyMap | None = None,
    variant: str | None = None,
) -> Offloaded:
    """Builds a model of transformers or diffusers from its config and streams its checkpoint.

    The model is built with its parameters on the meta device and its buffers real. The checkpoint
    is planned and packed on the first call; later ones use that pack as long as the checkpoint is
    the same. It lies beside a local folder, `<folder>.panda`, and for a cached model in
    `$TRASH_PANDA_PACKS`, else in `~/.cache/trash-panda/packs`.

    :param model_id_or_dir: a folder, or "org/name" or "org/name@revision" of the Hugging Face
        cache.
    :param cls: the model's class, an Auto class, or the name of one; default: as config.json says.
    :param subfolder: the model's folder in that of a pipeline, such as "transformer".
    :param plan: "auto" plans for this machine; or a plan, or its file, whose tiers are used.
    :param repack: "auto" and "require" make the pack when there is none of this checkpoint;
        "never" writes nothing: it uses the pack that there is, else streams from the checkpoint
        itself, with more and smaller reads, nothing coded and no checksums.
    :param dtype: "bf16", "fp16", "fp32", "keep" or a torch dtype; what weights are computed in.
    :param device: where to compute, as of load().
    :param local_files_only: False lets huggingface_hub download what the cache lacks.
    :param key_map: as that of load().
    :param variant: "fp16" for the files that have it in their names, `model.fp16.safetensors`.
    :return: as load() does; its `model` is in eval mode, with the folder's generation config.
    :raises CheckpointError: nothing there, or it can't be read; MissingTensorsError: see load().
    :raises UnsupportedFormatError: the checkpoint can't be packed, or its class is not known; with
        repack="never": only a pack can hold it (torch files, scales that have to be converted).
    :raises DoesNotFitError, PlanError, IntegrityError: as the command line's plan and repack.
    """
    require_torch()
    if repack not in _REPACK:
        raise ValueError(f"repack is {repack!r}, not one of {', '.join(_REPACK)}")
    from ._build import build_empty
    from ._dtypes import compute_dtype_name, plan_dtype_name, torch_dtype
    from ._merged_memory import merged_bytes

    compute = compute_dtype_name(dtype)
    folder = find_model(model_id_or_dir, subfolder, variant, local_files_only=local_files_only)
    model = build_empty(folder.path, cls, None if compute is None else torch_dtype(compute))
    chosen = None if plan == "auto" else plan
    stored = stored_plan(chosen)

    def write_plan(file: Path) -> None:
        if stored is not None:
            file.write_text(stored.text, encoding="utf-8")
        else:
            dtype_name = plan_dtype_name(compute)
            command: list[str | Path] = ["plan", folder.checkpoint, "--compute-dtype", dtype_name]
            beside = merged_bytes(model, folder.checkpoint, dtype, key_map)
            plan_beside(command, None, beside).save(file)

    options: dict[str, Any] = {"device": device, "compute_dtype": dtype, "key_map": key_map}
    if repack == "never" and not is_fresh(folder.checkpoint, folder.pack):
        # Planning measures the drive, but writes nothing beside the checkpoint.
        with tempfile.TemporaryDirectory(prefix="trash-panda-") as temporary:
            file = Path(temporary) / "plan.toml"
            write_plan(file)
            pack = Pack.of_checkpoint(folder.checkpoint, StoredPlan.read(file))
        return prepare_load(pack, model, **options).open()
    ensure_pack(folder.checkpoint, folder.pack, write_plan)
    return load(folder.pack, model, plan=chosen, **options)
