"""Refusals of what would change a streaming model half, or copy a model without its weights.

They speak before anything is done. Single tensors have the last word (see _placeholder.py), but by
the time that one is asked, others may have been changed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from ._errors import TrashPandaError


class NotCopyable:
    """Copying a hooked model would copy hooks bound to the original's stream."""

    def _refuse(self) -> NoReturn:
        raise TrashPandaError(
            "a model whose weights stream can't be copied or pickled: build another one and load "
            "the pack again"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self._refuse()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self._refuse()


class _Conversion(NotCopyable):
    """Stands before a module's _apply(), which is what to(), half(), cpu() and the like call."""

    def __init__(
        self,
        module: nn.Module,
        dtype: torch.dtype | None,
        device: torch.device,
        move: Callable[[torch.device], bool],
    ) -> None:
        self._module = weakref.ref(module)
        self._dtype = dtype
        self._device = device
        self._move = move

    def __call__(self, change: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        module = self._module()
        assert module is not None
        if self._dtype is None:
            dtypes = {t.dtype for t in (*module.parameters(), *module.buffers())}
        else:
            # What is kept in another dtype, such as rotary tables, is so for a reason: to() the
            # dtype that the model has changes nothing of that either.
            dtypes = {self._dtype}
        with torch.inference_mode(False):
            probes = [torch.zeros(1, dtype=dtype, device=self._device) for dtype in dtypes]
        changed = [(probe, change(probe)) for probe in probes]
        if all(new.dtype == old.dtype for old, new in changed):
            target = self._target(change, changed)
            if target is not None and self._move(target):
                return module
        if not all(new is old for old, new in changed):
            raise TrashPandaError(
                f"the weights of {type(module).__name__} stream from a pack, so it can't be moved "
                "or converted; load() has compute_dtype and device for that"
            )
        return module  # to() of where it is, and such, which change nothing.

    def _target(
        self, change: Callable[[Tensor], Tensor], changed: list[tuple[Tensor, Tensor]]
    ) -> torch.device | None:
        """Where the model is to go; None: nowhere, as of to() a dtype."""
        targets = {new.device for _, new in changed}
        if len(targets) != 1:
            return None
        target = targets.pop()
        # What stays where the model is was sent there only if what is elsewhere comes, too.
        with torch.inference_mode(False):
            elsewhere = change(torch.zeros(1, dtype=changed[0][0].dtype))
        return target if elsewhere.device == target else None


def _stay(device: torch.device) -> bool:
    """A part of a model does not move by itself."""
    return False


def refuse_state_dict(module: nn.Module, prefix: str, keep_vars: bool) -> NoReturn:
    raise TrashPandaError(
        f"the weights of {prefix.rstrip('.') or type(module).__name__} are in a pack, not in "
        "memory: a state_dict would hold empty tensors; read them from the pack's shards, which "
        "are safetensors files"
    )


def _refuse_load_state_dict(module: nn.Module, state: Any, prefix: str, *rest: Any) -> NoReturn:
    raise TrashPandaError(
        f"the weights of {prefix.rstrip('.') or type(module).__name__} stream from a pack: "
        "load_state_dict() can't change them; repack a checkpoint that holds the new ones"
    )


class Guards:
    """The guards on the modules that hold streamed weights, at any depth.

    :param dtype: that the model computes in; None: each weight's own.
    :param device: where the model computes.
    :param move: told where the model is to go; answers whether that was all there is to do.
    """

    def __init__(
        self,
        model: nn.Module,
        tensor_names: Iterable[str],
        dtype: torch.dtype | None,
        device: torch.device,
        move: Callable[[torch.device], bool],
    ) -> None:
        self._modules: list[weakref.ref[nn.Module]] = []
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        paths = {name.rsplit(".", up)[0] for name in tensor_names for up in _levels(name)}
        modules = [model, *(model.get_submodule(path) for path in sorted(paths))]
        for module in dict.fromkeys(modules):
            self._modules.append(weakref.ref(module))
            module._apply = _Conversion(  # type: ignore[method-assign]
                module, dtype, device, move if module is model else _stay
            )
            self._handles.append(module.register_load_state_dict_pre_hook(_refuse_load_state_dict))  # type: ignore[no-untyped-call]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        for reference in self._modules:
            module = reference()
            if module is not None:
                module.__dict__.pop("_apply", None)
        self._handles.clear()
        self._modules.clear()


def _levels(name: str) -> range:
    """How many parts may be cut off a tensor's name to get the modules around it, but the root."""
    return range(1, name.count(".") + 1)
