#include "pack_binding.h"

#include <atomic>
#include <exception>
#include <filesystem>

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include "trash_panda/base/units.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/format/pack_verify.h"
#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/runtime/checkpoint_manifest.h"
#include "trash_panda/runtime/expand.h"

#include "arguments.h"
#include "errors.h"
#include "text.h"

namespace nb = nanobind;

namespace trash_panda::python {
namespace {

nb::tuple to_tuple(const format::Shape& shape) {
  nb::list result;
  for (const std::uint64_t size : shape) {
    result.append(size);
  }
  return nb::tuple(result);
}

nb::dict tensor_dict(const format::PackedTensor& tensor) {
  nb::dict result;
  result["name"] = to_str(tensor.name);
  // What its user gets: F32 that a pack holds as BF16 are F32.
  result["dtype"] = to_str(format::dtype_name(tensor.value_dtype()));
  result["shape"] = to_tuple(tensor.shape);
  result["size_bytes"] = tensor.size_bytes;
  result["is_scale"] = tensor.is_scale;
  result["has_scale"] = tensor.scale.has_value();
  return result;
}

nb::dict extent_dict(const format::PackedExtent& extent) {
  nb::list tensors;
  for (const format::PackedTensor& tensor : extent.tensors) {
    tensors.append(tensor_dict(tensor));
  }
  nb::dict result;
  result["name"] = to_str(extent.name);
  result["tier"] = to_str(format::tier_name(extent.tier));
  result["stored_bytes"] = extent.stored_bytes;
  result["tensors"] = tensors;
  return result;
}

nb::dict manifest_dict(const format::Manifest& manifest) {
  nb::list extents;
  for (const format::PackedExtent& extent : manifest.extents) {
    extents.append(extent_dict(extent));
  }
  nb::dict aliases;
  for (const auto& [alias, name] : manifest.aliases) {
    aliases[to_str(alias)] = to_str(name);
  }
  nb::dict result;
  result["source_path"] = to_str(manifest.source_path);
  result["source_fingerprint"] = to_str(manifest.source_fingerprint);
  result["extents"] = extents;
  result["aliases"] = aliases;
  return result;
}

nb::dict read_manifest(const std::filesystem::path& pack) {
  return manifest_dict(unwrap([&] {
    const nb::gil_scoped_release no_gil;
    return format::read_manifest(pack);
  }()));
}

nb::dict checkpoint_manifest(const std::filesystem::path& checkpoint, const std::string& plan) {
  return manifest_dict(unwrap([&]() -> Result<format::Manifest> {
    const nb::gil_scoped_release no_gil;
    TP_ASSIGN_OR_RETURN(const plan::Plan parsed, plan::parse_plan_toml(plan, "plan"));
    return runtime::checkpoint_manifest(checkpoint, parsed);
  }()));
}

// Runs in the caller's thread, so Python's exceptions (Ctrl-C, or from `progress` itself) can be
// carried out through verify_pack(), which ends soon after the flag is set.
nb::list verify_pack(const std::filesystem::path& pack, const nb::object& progress) {
  std::atomic<bool> stop = false;
  std::exception_ptr thrown;
  format::VerifyOptions options;
  options.stop = &stop;
  options.progress = [&](const Progress& state) {
    const nb::gil_scoped_acquire gil;
    try {
      if (PyErr_CheckSignals() != 0) {
        throw nb::python_error();
      }
      if (!progress.is_none() && !stop) {
        progress(state.done_bytes, state.total_bytes);
      }
    } catch (...) {
      thrown = std::current_exception();
      stop = true;
    }
  };
  auto report = [&] {
    const nb::gil_scoped_release no_gil;
    return format::verify_pack(pack, options);
  }();
  if (thrown) {
    std::rethrow_exception(thrown);
  }
  nb::list mismatches;
  for (const std::string& line : unwrap(std::move(report)).mismatches) {
    mismatches.append(to_str(line));
  }
  return mismatches;
}

}  // namespace

void bind_pack(nb::module_& module) {
  module.def("read_manifest", &read_manifest, nb::arg("pack"));
  module.def("checkpoint_manifest", &checkpoint_manifest, nb::arg("checkpoint"), nb::arg("plan"));
  module.def("verify_pack", &verify_pack, nb::arg("pack"), nb::arg("progress") = nb::none());
  module.def(
      "parse_bytes", [](const std::string& text) { return unwrap(parse_bytes(text)); },
      nb::arg("text"));
  module.def(
      "can_expand",
      [](const std::string& from, const std::string& to) {
        return runtime::can_expand(dtype_argument(from), dtype_argument(to));
      },
      nb::arg("stored"), nb::arg("wanted"));
}

}  // namespace trash_panda::python
