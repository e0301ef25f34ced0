// Writing a pack on a system whose calls fail, stop halfway or refuse O_DIRECT, at every call.

#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/pack_verify.h"
#include "trash_panda/format/pack_writer.h"

#include "faulty_calls.h"
#include "format/support/sample_pack.h"

namespace trash_panda::format {
namespace {

using testing::CallFault;
using testing::DirectFault;
using testing::FaultyCalls;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::must;
using testing::read_text;
using testing::SamplePack;

std::map<std::string, std::string> pack_files(const std::filesystem::path& pack) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(pack)) {
    // The manifest names the source's folder.
    if (entry.path().filename() != kManifestName) {
      files[entry.path().filename()] = read_text(entry.path());
    }
  }
  return files;
}

std::map<std::string, std::string> undisturbed_files() {
  const FaultyCalls counted(CallFault::kNone);
  SamplePack sample;
  must(sample.write());
  return pack_files(sample.target());
}

std::uint64_t calls_of_an_undisturbed_run() {
  SamplePack sample;
  sample.options().journal_bytes = 1;
  const FaultyCalls counted(CallFault::kNone);
  must(sample.write());
  return FaultyCalls::count();
}

class PackCalls : public ::testing::TestWithParam<CallFault> {};

TEST_P(PackCalls, FailClearlyOrSucceedWhicheverFails) {
  const std::map<std::string, std::string> expected = undisturbed_files();
  const std::uint64_t call_count = calls_of_an_undisturbed_run();
  ASSERT_GT(call_count, 100U);
  std::size_t failed_count = 0;
  for (std::uint64_t call = 0; call < call_count; ++call) {
    SCOPED_TRACE(fmt::format("call {} of about {}", call, call_count));
    SamplePack sample;
    sample.options().journal_bytes = 1;
    Result<Manifest> written = [&] {
      const FaultyCalls faulty(GetParam(), call);
      return sample.write();
    }();
    const FaultyCalls fast(CallFault::kNone);
    if (!written) {
      ++failed_count;
      EXPECT_FALSE(written.error().message().empty());
      EXPECT_FALSE(std::filesystem::exists(sample.target())) << written.error().to_string();
      must(sample.write());
    }
    EXPECT_TRUE(pack_files(sample.target()) == expected);
    EXPECT_THAT(must(verify_pack(sample.target(), {})).mismatches, IsEmpty());
  }
  const bool is_harmless = GetParam() == CallFault::kInterrupted || GetParam() == CallFault::kShort;
  EXPECT_EQ(failed_count > 0, !is_harmless) << failed_count;
}

INSTANTIATE_TEST_SUITE_P(Faults, PackCalls,
                         ::testing::Values(CallFault::kNoSpace, CallFault::kIo,
                                           CallFault::kInterrupted, CallFault::kShort));

/// A checkpoint of large tensors, an extent each, and a pack of it.
class LargePack {
 public:
  explicit LargePack(const std::vector<std::uint64_t>& sizes) {
    testing::SafetensorsBuilder builder;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      builder.add_random(fmt::format("tensor{}", i), Dtype::kU8, {sizes[i]});
    }
    builder.write(dir_ / "model.safetensors");
    data_ = builder.tensors();
    options_.reserve_bytes = 0;
    options_.journal_bytes = 1;
  }

  PackOptions& options() { return options_; }

  Result<Manifest> write() {
    const Checkpoint checkpoint = must(Checkpoint::open(dir_ / "model.safetensors"));
    WeightTable weights;
    PackLayout layout;
    for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
      const std::string_view name = checkpoint.tensors()[i].name;
      weights.weights.push_back(
          {.name = name, .tensor_index = i, .dtype = Dtype::kU8, .scale = {}});
      layout.extents.push_back({.name = std::string(name), .tier = Tier::kDisk, .weights = {i}});
    }
    return write_pack(FileSystem::posix(), checkpoint, weights, layout, dir_ / "out.panda",
                      options_);
  }

  void expect_written() {
    const Manifest manifest = must(write());
    EXPECT_THAT(must(verify_pack(dir_ / "out.panda", {})).mismatches, IsEmpty());
    const std::string shard = read_text(dir_ / "out.panda" / manifest.shards[0].name);
    for (const PackedExtent& extent : manifest.extents) {
      const PackedTensor& tensor = extent.tensors[0];
      EXPECT_TRUE(shard.substr(extent.offset_bytes + tensor.offset_bytes, tensor.size_bytes) ==
                  data_[tensor.name])
          << tensor.name;
    }
  }

 private:
  testing::TempDir dir_;
  std::map<std::string, std::string> data_;
  PackOptions options_;
};

TEST(PackDirectCalls, AreDoneWithoutWhereTheyAreRefused) {
  for (const DirectFault fault :
       {DirectFault::kNone, DirectFault::kRefusedByOpen, DirectFault::kRefusedLater}) {
    LargePack pack({13, 9'000'001, 4096});
    const FaultyCalls faulty(fault);
    pack.expect_written();
  }
}

TEST(PackDirectCalls, ArentMadeWhereTheyArentWanted) {
  LargePack pack({13, 9'000'001, 4096});
  pack.options().direct = DirectUse::kNever;
  pack.expect_written();
}

TEST(PackDirectCalls, FailWhereTheyAreRefusedAndAskedFor) {
  for (const DirectFault fault : {DirectFault::kRefusedByOpen, DirectFault::kRefusedLater}) {
    LargePack pack({9'000'001});
    pack.options().direct = DirectUse::kAlways;
    const FaultyCalls faulty(fault);
    const Result<Manifest> written = pack.write();
    ASSERT_FALSE(written);
    EXPECT_THAT(written.error().message(), HasSubstr("O_DIRECT"));
  }
}

TEST(PackDirectCalls, MayAllStopHalfwayOrBeInterrupted) {
  for (const CallFault fault : {CallFault::kShort, CallFault::kInterrupted}) {
    LargePack pack({13, 9'000'001, 4096});
    const FaultyCalls faulty(fault);
    pack.expect_written();
  }
}

TEST(PackResumeCalls, ReadOfTheFinishedExtentsTheLastOneOnly) {
  constexpr std::uint64_t kSize = 1'200'000;
  constexpr std::size_t kCount = 6;
  constexpr std::size_t kFinished = 4;
  LargePack pack(std::vector<std::uint64_t>(kCount, kSize));
  std::atomic<bool> stop = false;
  std::size_t written_count = 0;
  pack.options().stop = &stop;
  pack.options().progress = [&](const Progress&) { stop = ++written_count >= kFinished; };
  const FaultyCalls counted(CallFault::kNone);
  ASSERT_FALSE(pack.write());
  const std::uint64_t before_bytes = FaultyCalls::read_bytes();
  stop = false;
  pack.options().progress = {};
  ASSERT_TRUE(pack.write());
  const std::uint64_t read_bytes = FaultyCalls::read_bytes() - before_bytes;
  // Two extents of the source; the last one that was finished, of the pack and of the source, which
  // must give it once more; headers.
  EXPECT_GT(read_bytes, (kCount - kFinished) * kSize);
  EXPECT_LT(read_bytes, (kCount - kFinished + 2) * kSize + kSize / 4);
}

}  // namespace
}  // namespace trash_panda::format
