"""What a module holds while its weights are away: tensors with a shape and dtype, and no values.

A plain tensor on the meta device would not do. Given one among real tensors, some of torch's
operations return uninitialised memory instead of raising, and copy_() into one does nothing. So a
placeholder's `device`, and what is made like it, is where its weight is computed with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from ._errors import ReleasedError, TrashPandaError

# fmt: off
_PROPERTIES = (
    "shape", "dtype", "requires_grad", "grad", "grad_fn", "is_leaf",
    "layout", "ndim", "itemsize", "nbytes", "names",
    "is_cpu", "is_cuda", "is_meta", "is_mkldnn", "is_mps", "is_mtia",
    "is_nested", "is_quantized", "is_sparse", "is_sparse_csr", "is_xla", "is_xpu",
    "is_ipu", "is_maia", "is_vulkan", "retains_grad", "output_nr", "_version",
)
_METHODS = (
    "size", "dim", "ndimension", "numel", "nelement", "element_size",
    "stride", "storage_offset", "is_contiguous", "is_floating_point", "is_complex", "is_signed",
    "is_inference", "is_shared", "is_pinned", "is_conj", "is_neg", "get_device",
    "dim_order", "__len__", "untyped_storage",
)
_FUNCTIONS = (
    "numel", "is_floating_point", "is_complex", "is_signed", "is_inference", "is_conj",
    "is_neg",
)
_MAKING_METHODS = ("new_empty", "new_zeros", "new_ones", "new_full")
_MAKING_FUNCTIONS = (
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like",
)
# fmt: on


def _found(
    *, properties: Iterable[str] = (), methods: Iterable[str], functions: Iterable[str]
) -> frozenset[Callable[..., Any]]:
    """Those that this torch has, as `__torch_function__` is told of them."""
    attributes = (getattr(Tensor, name, None) for name in properties)
    found = [getattr(each, "__get__", None) for each in attributes]
    found += [getattr(Tensor, name, None) for name in methods]
    found += [getattr(torch, name, None) for name in functions]
    return frozenset(each for each in found if each is not None)


# What may be asked of a tensor without its values.
_METADATA = _found(properties=_PROPERTIES, methods=_METHODS, functions=_FUNCTIONS)
# What makes another tensor of its shape or dtype.
_MAKING = _found(methods=_MAKING_METHODS, functions=_MAKING_FUNCTIONS)
_GET_DEVICE = Tensor.device.__get__
_SET_REQUIRES_GRAD = (Tensor.requires_grad.__set__, Tensor.requires_grad_)  # type: ignore[attr-defined]


class _Placeholder:
    """The behaviour of both kinds. Answers metadata, raises for all that needs values."""

    tensor_name: str
    block_name: str
    state: str  # "streamed", "released" or "missing".
    compute_device: torch.device

    def refuse(self) -> NoReturn:
        if self.state == "missing":
            raise TrashPandaError(
                f"{self.tensor_name} has no value: what was loaded lacks it, and it was allowed to "
                "be missing or skipped; set it in the model, or load a checkpoint that has it"
            )
        if self.state == "released":
            raise ReleasedError(
                f"{self.tensor_name} was released with the other weights of its model by close(); "
                "load the model again to use it"
            )
        raise TrashPandaError(
            f"{self.tensor_name} is not in memory: the weights of block {self.block_name} stream "
            "from a pack and are there only while the block runs; call the block or the model, "
            "not its parts"
        )

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func == _GET_DEVICE:
            return args[0].compute_device
        if func in _MAKING:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **{"device": args[0].compute_device, **kwargs})
        if func in _SET_REQUIRES_GRAD:
            wanted = (*args[1:], *kwargs.values())
            if not wanted or any(wanted):  # requires_grad_() means True.
                raise TrashPandaError(
                    f"{args[0].tensor_name} can't require a gradient: streamed weights can't be "
                    "trained"
                )
            return args[0]
        _first_placeholder((args, kwargs)).refuse()

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self.refuse()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self.refuse()

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        shape, dtype = list(self.shape), self.dtype  # type: ignore[attr-defined]
        return f"<{self.state} {self.tensor_name}, shape {shape}, {dtype}>"


class PlaceholderParameter(_Placeholder, nn.Parameter):  # type: ignore[misc]
    """Stands for a parameter."""


class PlaceholderBuffer(_Placeholder, Tensor):  # type: ignore[misc]
    """Stands for a buffer."""


def make_placeholder(
    shape: Sequence[int],
    dtype: torch.dtype,
    *,
    is_buffer: bool,
    tensor_name: str,
    block_name: str = "",
    state: str = "streamed",
    device: torch.device,
) -> Tensor:
    """A placeholder. Its names are those that the messages give.

    :param state: "streamed", "released" by close(), or "missing" in what was loaded.
    :param device: where its weight is computed with.
    """
    with torch.inference_mode(False):
        empty = torch.empty(tuple(shape), dtype=dtype, device="meta")
        kind = PlaceholderBuffer if is_buffer else PlaceholderParameter
        placeholder: Any = Tensor._make_subclass(kind, empty, False)
    placeholder.tensor_name = tensor_name
    placeholder.block_name = block_name
    placeholder.state = state
    placeholder.compute_device = device
    result: Tensor = placeholder
    return result


def release(placeholders: Iterable[Tensor]) -> None:
    """Lets the messages say that the model was closed."""
    for placeholder in placeholders:
        if isinstance(placeholder, _Placeholder):
            placeholder.state = "released"


def _first_placeholder(values: Any) -> Any:
    """The placeholder among an operation's arguments, which may be in lists."""
    if isinstance(values, _Placeholder):
        return values
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, (tuple, list)):
        for value in values:
            found = _first_placeholder(value)
            if found is not None:
                return found
    return None
