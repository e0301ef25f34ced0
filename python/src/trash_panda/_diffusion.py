"""pipeline(): a pipeline of diffusers whose large parts stream."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import CheckpointError, UnsupportedFormatError, make_error
from ._from_pretrained import from_pretrained
from ._plan import Plan
from ._torch import require_torch

if TYPE_CHECKING:
    import torch

LARGE_BYTES = 1_000_000_000
_LIBRARIES = ("diffusers", "transformers")


def pipeline(
    model_id_or_dir: str | os.PathLike[str],
    *,
    cls: Any = None,
    parts: Iterable[str] | None = None,
    plans: Mapping[str, Plan | str | os.PathLike[str]] | None = None,
    repack: str = "auto",
    dtype: str | torch.dtype = "bf16",
    device: str | torch.device | None = None,
    local_files_only: bool = True,
    variant: str | None = None,
    **components: Any,
) -> Any:
    """Builds a pipeline of diffusers: from_pretrained() for its large parts, diffusers for others.

    The pipeline is of diffusers' own class, all of whose calls work. Its new attribute `offloaded`
    has what from_pretrained() returned for each part that streams, by the part's name: for stats(),
    release_gpu(), close(). Each part is planned as if it were alone, and gives up memory for later
    ones as it loads; to have one after the other in memory, see Pipeline.

    :param model_id_or_dir: a folder with a model_index.json, or "org/name" or "org/name@revision"
        of the Hugging Face cache.
    :param cls: the pipeline's class or its name; default: as model_index.json says.
    :param parts: which parts stream, such as ["transformer", "text_encoder"]; default: models whose
        checkpoint takes 1 GB or more.
    :param plans: plans of parts, or their files; default: planned for this machine.
    :param repack: as of from_pretrained().
    :param dtype: "bf16", "fp16", "fp32" or a torch dtype: of all parts; "keep": as stored.
    :param device: where to compute, as of load(); parts that don't stream are moved there.
    :param local_files_only: False lets diffusers download what the cache lacks.
    :param variant: as of from_pretrained(), for the parts that have such files.
    :param components: of diffusers' from_pretrained(): parts to use as they are, `None` to do
        without one, and its other arguments.
    :return: the pipeline.
    :raises CheckpointError: no pipeline there, or no such part; and what from_pretrained() raises.
    """
    require_torch()
    diffusers = _diffusers()
    from ._dtypes import compute_dtype_name, torch_dtype
    from ._gpu import choose_place

    plans = dict(plans or {})
    folder = _find(diffusers, model_id_or_dir, variant, local_files_only=local_files_only)
    classes = {n: c for n, c in _model_classes(folder).items() if n not in components}
    if parts is None:
        large = (n for n in classes if checkpoint_bytes(folder / n, variant) >= LARGE_BYTES)
        chosen = list(dict.fromkeys([*large, *plans]))
    else:
        chosen = list(dict.fromkeys([*parts, *plans]))
    for name in chosen:
        if name not in classes:
            raise CheckpointError(
                f"{folder} has no part {name} that could stream: it has "
                f"{', '.join(sorted(classes))}"
            )
    compute = compute_dtype_name(dtype)
    with ExitStack() as opened:
        offloaded = {}
        for name in chosen:
            offloaded[name] = opened.enter_context(
                from_pretrained(
                    model_id_or_dir,
                    cls=classes[name],
                    subfolder=name,
                    plan=plans.get(name, "auto"),
                    repack=repack,
                    dtype=dtype,
                    device=device,
                    local_files_only=local_files_only,
                    variant=variant if _has_variant(folder / name, variant) else None,
                )
            )
        options = {name: part.model for name, part in offloaded.items()} | components
        if compute is not None:
            options.setdefault(_dtype_argument(diffusers), torch_dtype(compute))
        pipe = _class(diffusers, cls).from_pretrained(folder, variant=variant, **options)
        pipe = pipe.to(choose_place(device).device)
        pipe.offloaded = offloaded
        opened.pop_all()
    return pipe


def _diffusers() -> Any:
    try:
        import diffusers
    except ImportError as error:
        raise UnsupportedFormatError(
            "pipeline() is for pipelines of diffusers, which is not installed: "
            "pip install diffusers"
        ) from error
    return diffusers


def _dtype_argument(diffusers: Any) -> str:
    """What from_pretrained() calls the dtype: the older name warns from 0.40 on."""
    major, minor = (int(part) for part in diffusers.__version__.split(".")[:2])
    return "dtype" if (major, minor) >= (0, 40) else "torch_dtype"


def _class(diffusers: Any, cls: Any) -> Any:
    if cls is None:
        return diffusers.DiffusionPipeline
    if not isinstance(cls, str):
        return cls
    found = getattr(diffusers, cls, None)
    if found is None:
        raise UnsupportedFormatError(f"diffusers {diffusers.__version__} has no class {cls}")
    return found


def _find(
    diffusers: Any,
    model_id_or_dir: str | os.PathLike[str],
    variant: str | None,
    *,
    local_files_only: bool,
) -> Path:
    local = Path(model_id_or_dir)
    if local.is_dir():
        return local.resolve()
    name, _, revision = os.fspath(model_id_or_dir).partition("@")
    try:
        found = diffusers.DiffusionPipeline.download(
            name, revision=revision or None, variant=variant, local_files_only=local_files_only
        )
    except (OSError, ValueError) as error:
        raise make_error(
            "missing",
            f"{name} is no folder, and no pipeline in the Hugging Face cache: {error}",
            f"hf download {name}, or local_files_only=False",
        ) from error
    return Path(found)


def _model_classes(folder: Path) -> dict[str, str]:
    """The parts that are models of a known library: name → class."""
    file = folder / "model_index.json"
    try:
        index = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise make_error(
            "missing",
            f"{folder} has no model_index.json",
            "from_pretrained() is for single models",
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"can't read {file}: {error}") from error
    if not isinstance(index, dict):
        raise CheckpointError(f"{file} holds no JSON object")
    return {
        name: str(entry[1])
        for name, entry in index.items()
        if isinstance(entry, list)
        and len(entry) == 2
        and entry[0] in _LIBRARIES
        and any((folder / name).glob("*.safetensors"))
    }


def checkpoint_bytes(folder: Path, variant: str | None) -> int:
    """What the weights of a part take, those of the variant where it has such files."""
    files = [file for file in folder.glob("*.safetensors") if file.is_file()]
    wanted = variant if _has_variant(folder, variant) else None
    return sum(file.stat().st_size for file in files if _is_of(file, wanted))


def _has_variant(folder: Path, variant: str | None) -> bool:
    return variant is not None and any(
        _is_of(file, variant) for file in folder.glob("*.safetensors")
    )


def _is_of(file: Path, variant: str | None) -> bool:
    """Whether it has ".fp16" in its name; None: whether it has no such word."""
    words = file.name.split(".")[1:-1]  # Of "model.fp16-00001-of-00002.safetensors", too.
    return any(w.startswith(variant) for w in words) if variant else not words
