#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "trash_panda/runtime/streamer.h"

namespace trash_panda::python {

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
