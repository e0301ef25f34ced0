// Every call of the driver fails once, in every way that matters: the tensors are the same all the
// same, or there is one error that says so; nothing stays behind; and the next load works.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device.h"
#include "device/support/fake_gpu.h"
#include "format/support/coded_sample.h"
#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using format::Tier;
using ::testing::AnyOf;
using testing::fake;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StreamPack;

using Contents = std::map<std::string, std::string>;

enum class PackKind { kRaw, kCoded };

/// Opens, streams two passes and closes.
class InjectedErrors : public testing::FakeGpuTest, public ::testing::WithParamInterface<PackKind> {
 protected:
  void SetUp() override {
    FakeGpuTest::SetUp();
    if (GetParam() == PackKind::kCoded) {
      coded_.emplace();
      testing::must(coded_->write());
    } else {
      raw_.emplace(StreamPack::Options{.tiers = tiers_});
    }
  }

  Result<Contents> load_and_run() {
    TP_ASSIGN_OR_RETURN(const std::shared_ptr<Device> device, open_cuda_device(gpu_options()));
    StreamOptions options = testing::stream_options();
    options.device = device;
    options.compute_dtype = Dtype::kBf16;
    options.lookahead_bytes = 1;
    options.tiers =
        GetParam() == PackKind::kCoded ? std::vector{Tier::kDisk, Tier::kRam, Tier::kGpu} : tiers_;
    TP_ASSIGN_OR_RETURN(Streamer streamer, Streamer::open(pack_path(), options));
    std::vector<std::pair<std::string, std::unique_ptr<std::string>>> seen;
    const auto read = [&](const std::vector<TensorView>& tensors) {
      for (const TensorView& tensor : tensors) {
        seen.emplace_back(tensor.name, std::make_unique<std::string>());
        fake().compute(nullptr, {std::bit_cast<std::uintptr_t>(tensor.data), tensor.size_bytes}, {},
                       seen.back().second.get());
      }
    };
    Result<void> ran;
    for (std::size_t at = 0; at < 2 * streamer.block_count() && ran; ++at) {
      const Result<BlockLease> lease = streamer.acquire(at % streamer.block_count());
      if (lease) {
        read(lease->tensors());
      } else {
        ran = std::unexpected(lease.error());
      }
    }
    fake().wait_idle(nullptr);
    TP_RETURN_IF_ERROR(ran);
    if (fake().broken_by() != runtime::cuda::kSuccess) {
      return std::unexpected(Error(ErrorCode::kDevice, "CUDA_ERROR of the user's synchronisation"));
    }
    Contents contents;
    for (const auto& [name, bytes] : seen) {
      const auto [known, is_new] = contents.emplace(name, *bytes);
      EXPECT_TRUE(is_new || known->second == *bytes) << name << " differs from pass to pass";
    }
    return contents;
  }

  [[nodiscard]] std::filesystem::path pack_path() const {
    return coded_ ? coded_->target() : raw_->path();
  }

  const std::vector<Tier> tiers_ = {Tier::kDisk, Tier::kRam, Tier::kGpu, Tier::kDisk};
  std::optional<StreamPack> raw_;
  std::optional<testing::CodedSample> coded_;
};

INSTANTIATE_TEST_SUITE_P(, InjectedErrors, ::testing::Values(PackKind::kRaw, PackKind::kCoded),
                         [](const auto& tested) {
                           return tested.param == PackKind::kRaw ? "Raw" : "Coded";
                         });

/// TP_EVERY_CALL=1 for every call of each function, which takes minutes; else the first two, the
/// one in the middle and the last.
bool is_every_call_tried() {
  return std::getenv("TP_EVERY_CALL") != nullptr;
}

TEST_P(InjectedErrors, EachCallFailsOnce) {
  const Contents expected = testing::must(load_and_run());
  const std::map<std::string, int> calls = fake().calls();
  ASSERT_GT(calls.size(), 20U);
  int refused_count = 0;
  int served_count = 0;
  for (const auto& [function, count] : calls) {
    const std::set<int> some = {1, 2, count / 2, count};
    for (int nth = 1; nth <= count; ++nth) {
      for (const fake_cuda::Status status :
           {2, fake_cuda::kIllegalAddress, fake_cuda::kAlreadyRegistered, fake_cuda::kLaunchFailed,
            fake_cuda::kUnknownError}) {
        // What breaks the context does so from any call on; what is out of memory, at that one.
        const bool is_tried = status == 2 ? is_every_call_tried() || some.contains(nth)
                              : status == fake_cuda::kIllegalAddress ? some.contains(nth)
                                                                     : nth == 2;
        if (!is_tried) {
          continue;
        }
        SCOPED_TRACE(fmt::format("{}, call {} of {}: {}", function, nth, count, status));
        fake().reset(
            {.delays = nth % 2 == 0 ? fake_cuda::Delays::kRandom : fake_cuda::Delays::kNone,
             .random_delay_max = std::chrono::microseconds(50)});
        fake().fail(function, nth, status);
        const Result<Contents> contents = load_and_run();
        fake().forget_failures();  // Threads take turns anew: the call may not have come.
        if (contents) {
          EXPECT_TRUE(*contents == expected);
          ++served_count;
        } else {
          EXPECT_THAT(contents.error().code(), AnyOf(ErrorCode::kDevice, ErrorCode::kDoesNotFit));
          EXPECT_THAT(contents.error().message(), AnyOf(HasSubstr("CUDA_ERROR"), HasSubstr("GPU")));
          ++refused_count;
        }
        EXPECT_EQ(fake().books(), fake_cuda::Books());
        EXPECT_THAT(fake().violations(), IsEmpty());
        if (fake().broken_by() != runtime::cuda::kSuccess) {
          fake().reset({});  // A context that is broken is so for its process.
        }
        const Result<Contents> next = load_and_run();
        ASSERT_TRUE(next) << next.error().to_string();
        EXPECT_TRUE(*next == expected);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  EXPECT_GT(served_count, 0);
  EXPECT_GT(refused_count, 0);
}

TEST_P(InjectedErrors, PinsThatStayKeepTheirMemory) {
  fake().reset({});
  const Contents expected = testing::must(load_and_run());
  // From the self-test's two on, every unpinning fails.
  std::size_t kept = 0;
  {
    const std::shared_ptr<Device> device = open_gpu();
    StreamOptions options = testing::stream_options();
    options.device = device;
    Streamer streamer = testing::must(Streamer::open(pack_path(), options));
    fake().break_unpinning();
    kept = fake().registrations().size();
    ASSERT_GT(kept, 1U);
  }
  ASSERT_EQ(fake().registrations().size(), kept);
  for (const auto& [memory, size_bytes] : fake().registrations()) {
    const volatile char first = static_cast<const char*>(memory)[0];
    const volatile char last = static_cast<const char*>(memory)[size_bytes - 1];
    static_cast<void>(first + last);  // Would be a crash if it had been freed.
  }
  fake().reset({});
}

}  // namespace
}  // namespace trash_panda::runtime
