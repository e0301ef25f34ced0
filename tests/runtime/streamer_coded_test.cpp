// Streaming packs whose extents are in the exponent code.

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/runtime/streamer.h"

#include "format/support/coded_sample.h"

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using testing::CodedSample;
using ::testing::HasSubstr;
using testing::must;

std::string data_of(const TensorView& tensor) {
  return {reinterpret_cast<const char*>(tensor.data), tensor.size_bytes};
}

/// BF16 as F32: with zeros behind.
std::string widened(const std::string& bf16) {
  std::string wide;
  for (std::size_t i = 0; i < bf16.size(); i += 2) {
    wide += std::string(2, '\0') + bf16.substr(i, 2);
  }
  return wide;
}

std::map<std::string, std::string> streamed(const std::filesystem::path& pack,
                                            const StreamOptions& options) {
  Streamer streamer = must(Streamer::open(pack, options));
  std::map<std::string, std::string> found;
  for (const TensorView& tensor : streamer.base()) {
    found[std::string(tensor.name)] = data_of(tensor);
  }
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t block = 0; block < streamer.block_count(); ++block) {
      const BlockLease lease = must(streamer.acquire(block));
      for (const TensorView& tensor : lease.tensors()) {
        found[std::string(tensor.name)] = data_of(tensor);
      }
    }
  }
  return found;
}

TEST(StreamerCoded, GivesEveryTensorAsItWas) {
  CodedSample sample;
  must(sample.write());
  for (const VerifyMode verify : {VerifyMode::kHeaders, VerifyMode::kFull}) {
    StreamOptions options;
    options.verify = verify;
    EXPECT_TRUE(streamed(sample.target(), options) == sample.tensors());
  }
}

TEST(StreamerCoded, ExpandsWhatItDecodes) {
  CodedSample sample;
  must(sample.write());
  StreamOptions options;
  options.compute_dtype = Dtype::kF32;
  const std::map<std::string, std::string> found = streamed(sample.target(), options);
  EXPECT_TRUE(found.at("layers.0.f32") == sample.tensors().at("layers.0.f32"));
  EXPECT_TRUE(found.at("layers.2.ids") == sample.tensors().at("layers.2.ids"));
  // Not the random bits: some of them are NaN, which expansion may make quiet.
  for (const char* name : {"embed.weight", "layers.0.w", "layers.1.w"}) {
    EXPECT_TRUE(found.at(name) == widened(sample.tensors().at(name))) << name;
  }
}

TEST(StreamerCoded, NamesTheTensorWhoseCodeIsDamaged) {
  CodedSample sample;
  const format::Manifest manifest = must(sample.write());
  const format::PackedExtent& extent = manifest.extents[1];
  const format::PackedTensor& weight = extent.tensors[1];
  ASSERT_EQ(weight.name, "layers.0.w");
  const std::filesystem::path path = sample.target() / manifest.shards[extent.shard_index].name;
  std::string text = testing::read_text(path);
  std::memset(text.data() + extent.offset_bytes + weight.stored_offset_bytes, 0xff, 16);
  testing::write_text(path, text);
  Streamer streamer = must(Streamer::open(sample.target(), {}));
  const Result<BlockLease> lease = streamer.acquire(0);
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(lease.error().message(), HasSubstr("\"layers.0\""));
  EXPECT_THAT(lease.error().message(), HasSubstr("\"layers.0.w\""));
  must(streamer.acquire(1));
}

}  // namespace
}  // namespace trash_panda::runtime
