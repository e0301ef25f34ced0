#include "streamer_binding.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <ranges>
#include <unistd.h>
#include <utility>

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/runtime/streamer.h"

#include "arguments.h"
#include "errors.h"
#include "log_queue.h"
#include "tensor_export.h"
#include "text.h"

namespace nb = nanobind;

namespace trash_panda::python {
namespace {

using runtime::BlockLease;
using runtime::CudaDeviceOptions;
using runtime::MemoryGroup;
using runtime::Streamer;
using runtime::StreamHandle;
using runtime::StreamOptions;
using runtime::StreamStats;
using runtime::TensorView;

// A GPU, opened once for all models on it.
struct Gpu {
  std::shared_ptr<runtime::Device> device;
  int ordinal = 0;
};

// A Streamer for Python: any thread may call, one at a time gets through, and none holds the GIL
// while it waits.
//
// After a fork the child has a copy of it, but none of its threads, and locks that may be held
// for ever. There it takes no lock, and what it holds is left alone rather than destroyed.
class SharedStreamer {
 public:
  SharedStreamer(Streamer streamer, DlpackDevice device, std::shared_ptr<LogQueue> log)
      : streamer_(std::make_unique<Streamer>(std::move(streamer))),
        device_(device),
        log_(std::move(log)) {}
  SharedStreamer(const SharedStreamer&) = delete;
  SharedStreamer& operator=(const SharedStreamer&) = delete;
  SharedStreamer(SharedStreamer&&) = delete;
  SharedStreamer& operator=(SharedStreamer&&) = delete;
  ~SharedStreamer() {
    if (forked()) {
      // NOLINTNEXTLINE(bugprone-unused-return-value): leaked, see above.
      static_cast<void>(streamer_.release());
    }
  }

  // Whether this is the copy that a fork made.
  [[nodiscard]] bool forked() const { return ::getpid() != owner_pid_; }

  BlockLease acquire(std::size_t block_index, StreamHandle stream) {
    auto lease = [&]() -> Result<BlockLease> {
      if (forked()) {
        return std::unexpected(fork_error());
      }
      const nb::gil_scoped_release no_gil;
      const std::scoped_lock lock(mutex_);
      if (block_index >= streamer_->block_count()) {
        return std::unexpected(
            Error(ErrorCode::kUsage, "no block " + std::to_string(block_index) + ": the pack has " +
                                         std::to_string(streamer_->block_count())));
      }
      return streamer_->acquire(block_index, stream);
    }();
    log_->flush();
    return unwrap(std::move(lease));
  }

  void release(BlockLease& lease) {
    if (forked()) {
      // NOLINTNEXTLINE(bugprone-unused-return-value): leaked, see above.
      static_cast<void>(std::make_unique<BlockLease>(std::move(lease)).release());
      return;  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
    }
    const nb::gil_scoped_release no_gil;
    const std::scoped_lock lock(mutex_);
    lease.release();
  }

  StreamStats stats() {
    if (forked()) {
      throw NativeError(fork_error());
    }
    const nb::gil_scoped_release no_gil;
    const std::scoped_lock lock(mutex_);
    return streamer_->stats();
  }

  // Takes no lock of ours: a forward goes on while a block is read ahead of all others.
  void preload(std::size_t block_index) {
    auto done = [&]() -> Result<void> {
      if (forked()) {
        return std::unexpected(fork_error());
      }
      const nb::gil_scoped_release no_gil;
      return streamer_->preload(block_index);
    }();
    log_->flush();
    unwrap(std::move(done));
  }

  std::uint64_t drop(std::size_t block_index) {
    if (forked()) {
      return 0;
    }
    const nb::gil_scoped_release no_gil;
    return streamer_->drop(block_index);
  }

  void check_decoded() {
    on_device([this] { return streamer_->check_decoded(); });
  }
  void release_device() {
    on_device([this] { return streamer_->release_device(); });
  }
  void restore_device() {
    on_device([this] { return streamer_->restore_device(); });
  }

  void end_log() {
    if (!forked()) {
      const nb::gil_scoped_release no_gil;
      const std::scoped_lock lock(mutex_);
      streamer_->end_log();
    }
  }

  // As preload(): while a forward runs.
  std::uint64_t promote(std::uint64_t size_bytes_max) {
    if (forked()) {
      return 0;
    }
    std::uint64_t taken_bytes = 0;
    {
      const nb::gil_scoped_release no_gil;
      taken_bytes = streamer_->promote(size_bytes_max);
    }
    log_->flush();
    return taken_bytes;
  }

  [[nodiscard]] const std::vector<TensorView>& base() const { return streamer_->base(); }
  // Where all tensors are.
  [[nodiscard]] DlpackDevice device() const { return device_; }
  [[nodiscard]] std::size_t block_count() const { return streamer_->block_count(); }
  // No lock of ours, as of base().
  [[nodiscard]] bool all_resident() const {
    const auto indices = std::views::iota(std::size_t{0}, block_count());
    return std::ranges::all_of(indices, [&](std::size_t i) { return streamer_->is_resident(i); });
  }

 private:
  void on_device(const std::function<Result<void>()>& change) {
    auto done = [&]() -> Result<void> {
      if (forked()) {
        return std::unexpected(fork_error());
      }
      const nb::gil_scoped_release no_gil;
      const std::scoped_lock lock(mutex_);
      return change();
    }();
    log_->flush();
    unwrap(std::move(done));
  }

  static Error fork_error() {
    return Error(ErrorCode::kUsage,
                 "this model was loaded before the process forked, and the "
                 "threads that read for it stayed in the parent")
        .with_hint("load it in the child, or start workers with the \"spawn\" method");
  }

  std::mutex mutex_;
  std::unique_ptr<Streamer> streamer_;
  DlpackDevice device_;
  std::shared_ptr<LogQueue> log_;
  pid_t owner_pid_ = ::getpid();
};

// A block's tensors while they are lent. Its memory is the streamer's, so arrays made from it own
// the streamer, not the lease: after release() they hold other contents, and nothing any more once
// that memory went elsewhere (drop(), a promoted block that is demoted, release_device()).
class Lease {
 public:
  Lease(nb::object streamer, BlockLease lease)
      : streamer_(std::move(streamer)), lease_(std::move(lease)) {}
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = delete;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    if (streamer_.is_valid()) {
      release();
    }
  }

  [[nodiscard]] nb::list names() const {
    nb::list result;
    for (const TensorView& tensor : tensors()) {
      result.append(to_str(tensor.name));
    }
    return result;
  }

  // Where the tensors are, as one value to compare: a key for what was made of the same memory.
  [[nodiscard]] nb::bytes addresses() const {
    std::vector<const std::byte*> result;
    result.reserve(tensors().size());
    for (const TensorView& tensor : tensors()) {
      result.push_back(tensor.data);
    }
    return nb::bytes(result.data(), result.size() * sizeof(const std::byte*));
  }

  [[nodiscard]] nb::list arrays() const {
    const DlpackDevice device = nb::cast<SharedStreamer&>(streamer_).device();
    nb::list result;
    for (const TensorView& tensor : tensors()) {
      result.append(export_tensor(tensor, device, streamer_));
    }
    return result;
  }

  void release() {
    if (!std::exchange(released_, true)) {
      nb::cast<SharedStreamer&>(streamer_).release(lease_);
    }
  }

 private:
  [[nodiscard]] const std::vector<TensorView>& tensors() const {
    if (released_) {
      throw NativeError(Error(ErrorCode::kUsage, "the lease of this block has ended"));
    }
    return lease_.tensors();
  }

  nb::object streamer_;
  BlockLease lease_;
  bool released_ = false;
};

StreamOptions make_options(const std::optional<std::string>& compute_dtype,
                           const std::map<std::string, std::string>& dtype_overrides,
                           const std::string& verify, std::optional<std::uint64_t> lookahead_bytes,
                           const std::string& io, const std::filesystem::path& run_log,
                           std::shared_ptr<MemoryGroup> memory_group) {
  StreamOptions options;
  if (compute_dtype) {
    options.compute_dtype = dtype_argument(*compute_dtype);
  }
  for (const auto& [name, dtype] : dtype_overrides) {
    options.dtype_overrides.emplace(name, dtype_argument(dtype));
  }
  options.verify = verify_argument(verify);
  options.lookahead_bytes = lookahead_bytes;
  options.io = io_argument(io);
  options.run_log = run_log;
  if (memory_group != nullptr) {
    // Whoever shares a limit takes what there is room for, and the rest when others are done.
    options.memory_group = std::move(memory_group);
    options.ram_memory = runtime::RamMemory::kAsNeeded;
  }
  return options;
}

std::unique_ptr<SharedStreamer> open_streamer(
    const std::filesystem::path& pack, const std::optional<std::string>& compute_dtype,
    const std::map<std::string, std::string>& dtype_overrides, const std::string& verify,
    std::optional<std::uint64_t> lookahead_bytes, const std::string& io,
    const std::filesystem::path& run_log, std::shared_ptr<MemoryGroup> memory_group,
    const std::optional<std::string>& plan_text, bool is_packed, const std::optional<Gpu>& gpu) {
  StreamOptions options = make_options(compute_dtype, dtype_overrides, verify, lookahead_bytes, io,
                                       run_log, std::move(memory_group));
  DlpackDevice device;
  if (gpu) {
    options.device = gpu->device;
    options.ram_memory = runtime::RamMemory::kAtOnce;  // It is pinned at once.
    device = {.type = nb::device::cuda::value, .ordinal = gpu->ordinal};
  }
  auto log = std::make_shared<LogQueue>();
  options.log = log->logger();
  auto streamer = [&]() -> Result<Streamer> {
    const nb::gil_scoped_release no_gil;
    if (plan_text) {
      TP_ASSIGN_OR_RETURN(options.plan, plan::parse_plan_toml(*plan_text, "plan"));
    }
    return is_packed ? Streamer::open(pack, options)
                     : Streamer::open_checkpoint(pack, options.plan.value(), options);
  }();
  log->flush();
  return std::make_unique<SharedStreamer>(unwrap(std::move(streamer)), device, std::move(log));
}

Gpu open_gpu(int ordinal, const std::string& library, bool is_synchronous) {
  const auto log = std::make_shared<LogQueue>();
  CudaDeviceOptions options = {
      .ordinal = ordinal, .is_synchronous = is_synchronous, .log = log->logger()};
  if (!library.empty()) {
    options.library = library;
  }
  auto device = [&] {
    const nb::gil_scoped_release no_gil;
    return runtime::open_cuda_device(options);
  }();
  log->flush();
  return {.device = unwrap(std::move(device)), .ordinal = ordinal};
}

nb::dict stats_dict(const StreamStats& stats) {
  nb::dict result;
  result["pass_count"] = stats.pass_count;
  result["read_bytes_base"] = stats.read_bytes_base;
  result["read_bytes_ram"] = stats.read_bytes_ram;
  result["read_bytes_disk"] = stats.read_bytes_disk;
  result["pass_read_bytes_ram"] = stats.pass_read_bytes_ram;
  result["pass_read_bytes_disk"] = stats.pass_read_bytes_disk;
  result["promoted_block_count"] = stats.promoted_block_count;
  result["promoted_bytes"] = stats.promoted_bytes;
  result["demoted_block_count"] = stats.demoted_block_count;
  result["device_demoted_block_count"] = stats.device_demoted_block_count;
  result["mispredict_count"] = stats.mispredict_count;
  result["wait_ns"] = stats.wait_ns;
  result["weight_memory_bytes"] = stats.weight_memory_bytes;
  result["weight_memory_bytes_max"] = stats.weight_memory_bytes_max;
  result["device_memory_bytes"] = stats.device_memory_bytes;
  result["device_description"] = stats.device_description;
  result["io_description"] = stats.io_description;
  return result;
}

}  // namespace

void bind_streamer(nb::module_& module) {
  nb::class_<MemoryGroup>(module, "MemoryGroup", "A limit that several streamers share.")
      .def(nb::init<std::uint64_t, std::string>(), nb::arg("limit_bytes"), nb::arg("name"))
      .def_prop_ro("limit_bytes", &MemoryGroup::limit_bytes)
      .def_prop_ro("now_bytes", &MemoryGroup::now_bytes)
      .def_prop_ro("max_bytes", &MemoryGroup::max_bytes);
  nb::class_<Gpu>(module, "Gpu", "A GPU, for all models that compute on it.")
      .def_static("open", &open_gpu, nb::arg("ordinal"), nb::arg("library") = "",
                  nb::arg("is_synchronous") = false)
      .def_prop_ro("ordinal", [](const Gpu& self) { return self.ordinal; });
  nb::class_<SharedStreamer>(module, "Streamer", nb::is_weak_referenceable(),
                             "Streams a pack's blocks through fixed memory.")
      .def_static("open", &open_streamer, nb::arg("pack"), nb::kw_only(),
                  nb::arg("compute_dtype") = nb::none(),
                  nb::arg("dtype_overrides") = std::map<std::string, std::string>(),
                  nb::arg("verify") = "headers", nb::arg("lookahead_bytes") = nb::none(),
                  nb::arg("io") = "auto", nb::arg("run_log") = "",
                  nb::arg("memory_group") = nb::none(), nb::arg("plan") = nb::none(),
                  nb::arg("is_packed") = true, nb::arg("gpu") = nb::none())
      .def_prop_ro("block_count", &SharedStreamer::block_count)
      .def_prop_ro("all_resident", &SharedStreamer::all_resident)
      .def_prop_ro("forked", &SharedStreamer::forked)
      .def("base",
           [](nb::handle_t<SharedStreamer> self) {
             const SharedStreamer& streamer = nb::cast<SharedStreamer&>(self);
             nb::list result;
             for (const TensorView& tensor : streamer.base()) {
               result.append(nb::make_tuple(to_str(tensor.name),
                                            export_tensor(tensor, streamer.device(), self)));
             }
             return result;
           })
      .def(
          "acquire",
          [](nb::handle_t<SharedStreamer> self, std::size_t block_index, StreamHandle stream) {
            return std::make_unique<Lease>(
                nb::borrow(self), nb::cast<SharedStreamer&>(self).acquire(block_index, stream));
          },
          nb::arg("block_index"), nb::arg("stream") = 0)
      .def("preload", &SharedStreamer::preload, nb::arg("block_index"))
      .def("drop", &SharedStreamer::drop, nb::arg("block_index"))
      .def("check_decoded", &SharedStreamer::check_decoded)
      .def("release_device", &SharedStreamer::release_device)
      .def("restore_device", &SharedStreamer::restore_device)
      .def("promote", &SharedStreamer::promote, nb::arg("size_bytes_max") = UINT64_MAX)
      .def("end_log", &SharedStreamer::end_log)
      .def("stats", [](SharedStreamer& self) { return stats_dict(self.stats()); });

  nb::class_<Lease>(module, "Lease", "A block's tensors, in memory until release().")
      .def_prop_ro("names", &Lease::names)
      .def_prop_ro("addresses", &Lease::addresses)
      .def("arrays", &Lease::arrays)
      .def("release", &Lease::release);
}

}  // namespace trash_panda::python
