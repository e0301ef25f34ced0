#pragma once

#include <bit>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/runtime/device.h"
#include "trash_panda/runtime/features.h"

#include "cuda/context.h"
#include "fake_cuda/fake_cuda.h"
#include "format/support/sample_pack.h"

namespace trash_panda::testing {

/// Path of the fake driver: of this build, or of TP_FAKE_CUDA where the tests have moved elsewhere.
inline std::string fake_library() {
  const char* moved = std::getenv("TP_FAKE_CUDA");
  return moved != nullptr ? moved : TP_FAKE_CUDA;
}

/// The fake driver of this process, which stays loaded.
inline fake_cuda::Control& fake() {
  static fake_cuda::Control& control = *[] {
    void* const library = ::dlopen(fake_library().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      throw std::runtime_error(::dlerror());
    }
    return reinterpret_cast<fake_cuda::ControlFunction*>(
        ::dlsym(library, fake_cuda::kControlSymbol))();
  }();
  return control;
}

/// The user's side of a GPU, fake or real: streams of its own, in the same primary context.
class GpuUser {
 public:
  explicit GpuUser(int ordinal = 0, const std::string& library = fake_library())
      : is_fake_(library == fake_library()),
        context_(must(runtime::cuda::PrimaryContext::open(
            must(runtime::cuda::Driver::load(library.c_str())), ordinal))) {}
  GpuUser(const GpuUser&) = delete;
  GpuUser& operator=(const GpuUser&) = delete;
  ~GpuUser() {
    for (const runtime::StreamHandle stream : streams_) {
      static_cast<void>(context_->call(&runtime::cuda::Functions::StreamDestroy_v2,
                                       std::bit_cast<runtime::cuda::Stream>(stream)));
    }
  }

  runtime::StreamHandle make_stream() {
    runtime::cuda::Stream stream = nullptr;
    must(context_->check("stream", &runtime::cuda::Functions::StreamCreate, &stream,
                         runtime::cuda::kStreamNonBlocking));
    streams_.push_back(std::bit_cast<runtime::StreamHandle>(stream));
    return streams_.back();
  }
  void synchronize(runtime::StreamHandle stream) {
    must(context_->check("synchronizing", &runtime::cuda::Functions::StreamSynchronize,
                         std::bit_cast<runtime::cuda::Stream>(stream)));
  }
  /// Queues work that reads memory of the device.
  /// @param into      Filled when the stream is synchronised.
  /// @param duration  Of the fake, in simulated time.
  void read(runtime::StreamHandle handle, std::span<const std::byte> memory, std::string* into,
            std::chrono::nanoseconds duration = {}) {
    const auto stream = std::bit_cast<runtime::cuda::Stream>(handle);
    const auto address =
        static_cast<runtime::cuda::DeviceAddress>(std::bit_cast<std::uintptr_t>(memory.data()));
    if (is_fake_) {
      fake().compute(stream, {address, memory.size()}, duration, into);
      return;
    }
    into->resize(memory.size());
    must(context_->check("copying back", &runtime::cuda::Functions::MemcpyDtoHAsync_v2,
                         static_cast<void*>(into->data()), address, memory.size(), stream));
  }
  [[nodiscard]] const runtime::cuda::PrimaryContext& context() const { return *context_; }

 private:
  bool is_fake_;
  std::shared_ptr<runtime::cuda::PrimaryContext> context_;
  std::vector<runtime::StreamHandle> streams_;
};

/// Why no test can run on a real GPU here; empty: one is there.
inline std::string missing_gpu() {
  const Result<runtime::cuda::Driver> driver = runtime::cuda::Driver::load();
  return driver ? "" : driver.error().message();
}

/// A machine with fake GPUs, of which every test must give everything back and break no rule.
class FakeGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!runtime::cuda_kernels_embedded()) {
      GTEST_SKIP() << "built without nvcc: there are no kernels to load";
    }
    fake().reset({});
  }
  void TearDown() override {
    EXPECT_THAT(fake().violations(), ::testing::IsEmpty());
    EXPECT_EQ(fake().books(), fake_cuda::Books());
    fake().reset({});
  }

  static runtime::CudaDeviceOptions gpu_options(int ordinal = 0) {
    runtime::CudaDeviceOptions options;
    options.ordinal = ordinal;
    options.library = fake_library();
    options.pinned_bytes_max = std::uint64_t{1} << 30;
    return options;
  }
  static std::shared_ptr<runtime::Device> open_gpu(int ordinal = 0) {
    return must(runtime::open_cuda_device(gpu_options(ordinal)));
  }
};

}  // namespace trash_panda::testing

namespace trash_panda::fake_cuda {

inline void PrintTo(const Books& books, std::ostream* out) {
  *out << books.contexts << " contexts, " << books.streams << " streams, " << books.events
       << " events, " << books.modules << " modules, " << books.device_allocations << " device and "
       << books.host_allocations << " host allocations, " << books.registrations
       << " registrations";
}

}  // namespace trash_panda::fake_cuda
