// Streaming packs whose extents are in the exponent code.

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trash_panda/base/units.h"
#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/runtime/streamer.h"

#include "format/support/coded_sample.h"
#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using format::Tier;
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

const format::PackedTensor& tensor_of(const format::Manifest& manifest, std::string_view name) {
  for (const format::PackedExtent& extent : manifest.extents) {
    for (const format::PackedTensor& tensor : extent.tensors) {
      if (tensor.name == name) {
        return tensor;
      }
    }
  }
  throw std::runtime_error("no such tensor");
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
    StreamOptions options = testing::stream_options();
    options.verify = verify;
    EXPECT_TRUE(streamed(sample.target(), options) == sample.tensors());
  }
}

TEST(StreamerCoded, ExpandsWhatItDecodes) {
  CodedSample sample;
  must(sample.write());
  StreamOptions options = testing::stream_options();
  options.compute_dtype = Dtype::kF32;
  const std::map<std::string, std::string> found = streamed(sample.target(), options);
  EXPECT_TRUE(found.at("layers.0.f32") == sample.tensors().at("layers.0.f32"));
  EXPECT_TRUE(found.at("layers.2.ids") == sample.tensors().at("layers.2.ids"));
  // Not the random bits: some of them are NaN, which expansion may make quiet.
  for (const char* name : {"embed.weight", "layers.0.w", "layers.1.w"}) {
    EXPECT_TRUE(found.at(name) == widened(sample.tensors().at(name))) << name;
  }
}

/// Blocks of the RAM tier are kept as they are stored, whatever is made of them.
TEST(StreamerCoded, KeepsRamBlocksCodedAndReadsThemOnce) {
  CodedSample sample;
  const format::Manifest manifest = must(sample.write());
  std::uint64_t base_bytes = 0;
  std::uint64_t stored_bytes = 0;
  for (const format::PackedExtent& extent : manifest.extents) {
    if (extent.tier != Tier::kBase) {
      stored_bytes += extent.stored_bytes;
    }
  }
  StreamOptions options = testing::stream_options();
  options.tiers = std::vector<Tier>(3, Tier::kRam);
  Streamer streamer = must(Streamer::open(sample.target(), options));
  for (const TensorView& tensor : streamer.base()) {
    base_bytes += must(round_up(tensor.size_bytes, 4096));
  }
  std::uint64_t largest_bytes = 0;  // Of what is made of a block: its coded tensors.
  for (int pass = 0; pass < 3; ++pass) {
    for (std::size_t block = 0; block < 3; ++block) {
      const BlockLease lease = must(streamer.acquire(block));
      std::uint64_t made_bytes = 0;
      for (const TensorView& tensor : lease.tensors()) {
        EXPECT_TRUE(data_of(tensor) == sample.tensors().at(std::string(tensor.name)));
        const bool is_made = tensor_of(manifest, tensor.name).coding != format::TensorCoding::kRaw;
        made_bytes += is_made ? must(round_up(tensor.size_bytes, 256)) : 0;
      }
      largest_bytes = std::max(largest_bytes, must(round_up(made_bytes, 4096)));
    }
    EXPECT_EQ(streamer.stats().read_bytes_ram, stored_bytes);
    // One block in use and one that is made ahead.
    EXPECT_EQ(streamer.stats().weight_memory_bytes, base_bytes + stored_bytes + 2 * largest_bytes);
  }
  EXPECT_EQ(streamer.stats().read_bytes_disk, 0U);
}

/// When each block's tensors began to be made, and when it was given back, by pass and block.
struct Made {
  std::map<std::pair<std::uint64_t, std::string>, double> begin_s;
  std::map<std::pair<std::uint64_t, std::string>, double> release_s;
};

Made read_made(const std::filesystem::path& run_log) {
  Made made;
  std::istringstream lines(testing::read_text(run_log));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json record = nlohmann::json::parse(line);
    if (record.at("type") == "span") {
      const std::pair<std::uint64_t, std::string> key = {record.at("pass"), record.at("block")};
      if (record.at("kind") == "decode") {
        made.begin_s[key] = record.at("begin_s");
      } else if (record.at("kind") == "compute") {
        made.release_s[key] = record.at("end_s");
      }
    }
  }
  return made;
}

TEST(StreamerCoded, MakesTheNextBlockWhileOneIsInUse) {
  CodedSample sample;
  must(sample.write());
  StreamOptions options = testing::stream_options();
  options.tiers = std::vector<Tier>(3, Tier::kRam);
  options.run_log = sample.dir() / "run.jsonl";
  {
    Streamer streamer = must(Streamer::open(sample.target(), options));
    for (int pass = 0; pass < 4; ++pass) {
      for (std::size_t block = 0; block < 3; ++block) {
        must(streamer.acquire(block));
      }
    }
    EXPECT_EQ(streamer.stats().mispredict_count, 0U);
  }
  const Made made = read_made(options.run_log);
  ASSERT_EQ(made.begin_s.size(), 8U);                // Block 2 has nothing to decode.
  for (std::uint64_t pass = 2; pass <= 4; ++pass) {  // In the first one blocks are still read.
    EXPECT_LE(made.begin_s.at({pass, "layers.1"}), made.release_s.at({pass, "layers.0"}));
    EXPECT_LE(made.begin_s.at({pass, "layers.0"}), made.release_s.at({pass - 1, "layers.2"}));
  }
}

TEST(StreamerCoded, ServesAnyOrderAndLeasesThatOverlap) {
  CodedSample sample;
  must(sample.write());
  std::mt19937 random(7);
  for (const Tier tier : {Tier::kRam, Tier::kDisk}) {
    StreamOptions options = testing::stream_options();
    options.tiers = std::vector<Tier>(3, tier);
    options.lookahead_bytes = 1;  // Two slots.
    Streamer streamer = must(Streamer::open(sample.target(), options));
    std::deque<BlockLease> held;
    for (std::size_t step = 0; step < 300; ++step) {
      while (held.size() > random() % 2) {
        held.pop_front();
      }
      const std::size_t block = random() % 4 == 0 ? random() % 3 : step % 3;
      held.push_back(must(streamer.acquire(block)));
      for (const TensorView& tensor : held.back().tensors()) {
        ASSERT_TRUE(data_of(tensor) == sample.tensors().at(std::string(tensor.name))) << step;
      }
    }
  }
}

TEST(StreamerCoded, MakesBlocksWhenAskedForWhereMemoryIsShort) {
  CodedSample sample;
  must(sample.write());
  StreamOptions options = testing::stream_options();
  options.tiers = std::vector<Tier>(3, Tier::kRam);
  std::uint64_t needed_bytes = 0;
  std::uint64_t buffer_bytes = 0;
  {
    Streamer streamer = must(Streamer::open(sample.target(), options));
    needed_bytes = streamer.stats().weight_memory_bytes_max;
    options.memory_bytes_max = needed_bytes - 1;
    Streamer limited = must(Streamer::open(sample.target(), options));
    buffer_bytes = needed_bytes - limited.stats().weight_memory_bytes_max;
    EXPECT_GT(buffer_bytes, 0U);
  }
  std::string said;
  options.log = [&said](LogLevel, std::string_view line) { said += line; };
  EXPECT_TRUE(streamed(sample.target(), options) == sample.tensors());
  EXPECT_THAT(said, HasSubstr("blocks are expanded when they are asked for"));
  // Nor does it take more than the plan says.
  options.memory_bytes_max.reset();
  plan::Plan plan;
  for (const bool fits : {true, false}) {
    said.clear();
    plan.ram_budget_bytes = needed_bytes - (fits ? 0 : 4096);  // Memory comes in pages.
    testing::write_text(sample.target() / "plan.toml", plan::write_plan_toml(plan));
    EXPECT_TRUE(streamed(sample.target(), options) == sample.tensors());
    EXPECT_EQ(said.find("of the plan's ") == std::string::npos, fits) << said;
  }
  options.memory_bytes_max = needed_bytes - buffer_bytes - 1;
  const Result<Streamer> streamer = Streamer::open(sample.target(), options);
  ASSERT_FALSE(streamer);
  EXPECT_EQ(streamer.error().code(), ErrorCode::kDoesNotFit);
}

TEST(StreamerCoded, NamesTheTensorWhoseCodeIsDamaged) {
  CodedSample sample;
  const format::Manifest manifest = must(sample.write());
  const format::PackedExtent& extent = manifest.extents[2];
  const format::PackedTensor& weight = extent.tensors[1];
  ASSERT_EQ(weight.name, "layers.1.w");
  const std::filesystem::path path = sample.target() / manifest.shards[extent.shard_index].name;
  std::string text = testing::read_text(path);
  std::memset(text.data() + extent.offset_bytes + weight.stored_offset_bytes, 0xff, 16);
  testing::write_text(path, text);
  for (const Tier tier : {Tier::kRam, Tier::kDisk}) {
    StreamOptions options = testing::stream_options();
    options.tiers = std::vector<Tier>(3, tier);
    Streamer streamer = must(Streamer::open(sample.target(), options));
    for (int pass = 0; pass < 3; ++pass) {
      must(streamer.acquire(0));  // While it is held, block 1 is begun.
      const Result<BlockLease> lease = streamer.acquire(1);
      ASSERT_FALSE(lease);
      EXPECT_EQ(lease.error().code(), ErrorCode::kCorrupt);
      EXPECT_THAT(lease.error().message(), HasSubstr("\"layers.1\""));
      EXPECT_THAT(lease.error().message(), HasSubstr("\"layers.1.w\""));
      must(streamer.acquire(2));
    }
  }
}

}  // namespace
}  // namespace trash_panda::runtime
