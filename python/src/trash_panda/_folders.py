"""Where a model's files are, and where its pack is or shall be."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._errors import CheckpointError, make_error

_STEMS = ("model", "diffusion_pytorch_model")


@dataclass(frozen=True)
class ModelFolder:
    """A folder with a model's config, its checkpoint, and the place of its pack."""

    path: Path
    checkpoint: Path
    pack: Path


def find_model(
    model_id_or_dir: str | os.PathLike[str],
    subfolder: str | None,
    variant: str | None,
    *,
    local_files_only: bool,
) -> ModelFolder:
    """A local folder, or "org/name" or "org/name@revision" of the Hugging Face cache.

    The pack of a local folder lies beside it, as the command line has it. That of a cached model
    lies in the cache of this package, as those folders are not for others to write into.
    """
    path, pack = _find(model_id_or_dir, subfolder, local_files_only=local_files_only)
    if variant is None:
        return ModelFolder(path, path, pack)
    pack = pack.with_name(f"{pack.name.removesuffix('.panda')}.{variant}.panda")
    return ModelFolder(path, _variant(path, variant), pack)


def _variant(folder: Path, variant: str) -> Path:
    """The file, or the index of the shards, as transformers and diffusers name them."""
    names = [
        f"{stem}{ending}"
        for stem in _STEMS
        for ending in (f".safetensors.index.{variant}.json", f".{variant}.safetensors")
    ]
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise make_error("missing", f"{folder} has no {names[1]}", f"trash-panda inspect {folder}")
    return found


def _find(
    model_id_or_dir: str | os.PathLike[str], subfolder: str | None, *, local_files_only: bool
) -> tuple[Path, Path]:
    """The folder and its pack."""
    local = Path(model_id_or_dir)
    if local.is_dir():
        path = _subfolder(local.resolve(), subfolder)
        return path, path.with_name(path.name + ".panda")
    name = os.fspath(model_id_or_dir)
    snapshot = _snapshot(name, subfolder, local_files_only=local_files_only)
    parts = [*name.replace("@", "/").split("/"), *(subfolder or "").split("/")]
    pack = pack_folder() / ("--".join(part for part in parts if part) + ".panda")
    return _subfolder(snapshot, subfolder), pack


def cache_folder() -> Path:
    """Folder of what is kept between runs: $XDG_CACHE_HOME/trash-panda, else ~/.cache/…."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "trash-panda"


def pack_folder() -> Path:
    """Folder of packs of cached models: $TRASH_PANDA_PACKS, else in the cache."""
    chosen = os.environ.get("TRASH_PANDA_PACKS")
    return Path(chosen) if chosen else cache_folder() / "packs"


def _subfolder(folder: Path, subfolder: str | None) -> Path:
    path = folder / subfolder if subfolder else folder
    if not path.is_dir():
        raise make_error("missing", f"{folder} has no folder {subfolder}")
    return path


def _snapshot(name: str, subfolder: str | None, *, local_files_only: bool) -> Path:
    if name.count("/") != 1 or name.startswith(("/", ".")):
        raise make_error(
            "missing", f"{name} is no folder", "give a folder, or org/name of the Hugging Face hub"
        )
    repo, _, revision = name.partition("@")
    hub = _hub()
    inside = f"{subfolder}/" if subfolder else ""
    try:
        found = hub.snapshot_download(
            repo,
            revision=revision or None,
            local_files_only=local_files_only,
            allow_patterns=[f"{inside}*.json", f"{inside}*.safetensors"],
        )
    except hub.errors.LocalEntryNotFoundError as error:
        wanted = f" --revision {revision}" if revision else ""
        raise make_error(
            "missing",
            f"{name} is no folder and not in the Hugging Face cache",
            f"hf download {repo}{wanted}, or local_files_only=False",
        ) from error
    return Path(found)


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise CheckpointError(
            "models of the Hugging Face cache are found by huggingface_hub, which is not "
            "installed: pip install huggingface_hub, or give a folder"
        ) from error
    return huggingface_hub
