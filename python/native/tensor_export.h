#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "trash_panda/runtime/streamer.h"

namespace trash_panda::python {

/// A dtype and what one of its elements is in DLPack: sub-byte types are packed, so that an
/// element of F4 is two values and the last dimension halves.
struct DlpackType {
  nanobind::dlpack::dtype dtype;
  unsigned values_per_element;
};

/// The DLPack type of a stored dtype. 6-bit floats have none that holds packed values; they cross
/// as bytes.
[[nodiscard]] DlpackType dlpack_type(format::Dtype dtype);

/// Where a tensor's memory is, as DLPack counts devices.
struct DlpackDevice {
  int type = nanobind::device::cpu::value;
  int ordinal = 0;
};

/// Wraps a tensor without copying. The memory is the streamer's: `owner` is the Python object that
/// keeps it alive.
[[nodiscard]] nanobind::object export_tensor(const runtime::TensorView& tensor, DlpackDevice device,
                                             nanobind::handle owner);

}  // namespace trash_panda::python
