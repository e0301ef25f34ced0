#include "trash_panda/format/pack_unpack.h"

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trash_panda/format/pack_verify.h"

#include "format/support/fault_file_system.h"
#include "format/support/sample_pack.h"

namespace trash_panda::format {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::must;
using testing::read_text;
using testing::SafetensorsBuilder;
using testing::SamplePack;

/// Name, dtype, shape and bytes of every tensor.
std::map<std::string, std::string> contents_of(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> contents;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    const TensorRecord& tensor = checkpoint.tensors()[i];
    std::string bytes(tensor.size_bytes, '\0');
    EXPECT_TRUE(checkpoint.read_tensor(i, std::as_writable_bytes(std::span(bytes))));
    contents[std::string(tensor.name)] =
        fmt::format("{} {} ", dtype_name(tensor.dtype), to_string(tensor.shape)) + bytes;
  }
  return contents;
}

nlohmann::json json_in(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_text(path));
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

UnpackOptions no_reserve() {
  UnpackOptions options;
  options.reserve_bytes = 0;
  return options;
}

/// Packs a checkpoint whose weights are all its tensors, a block each.
class PackedCheckpoint {
 public:
  explicit PackedCheckpoint(const std::filesystem::path& path, PackLayout layout = {})
      : checkpoint(must(Checkpoint::open(path))) {
    WeightTable weights;
    for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
      const TensorRecord& tensor = checkpoint.tensors()[i];
      const std::string name(tensor.name);
      if (!layout.aliases.contains(name)) {
        layout.extents.push_back(
            {.name = name, .tier = Tier::kDisk, .weights = {weights.weights.size()}});
        weights.weights.push_back(
            {.name = tensor.name, .tensor_index = i, .dtype = tensor.dtype, .scale = {}});
      }
    }
    PackOptions pack;
    pack.reserve_bytes = 0;
    must(write_pack(FileSystem::posix(), checkpoint, weights, layout, dir / "pack", pack));
  }

  Result<UnpackLayout> unpack(const UnpackOptions& unpack_options = no_reserve()) {
    return unpack_pack(FileSystem::posix(), dir / "pack", dir / "out", unpack_options);
  }

  testing::TempDir dir;
  Checkpoint checkpoint;
};

TEST(UnpackPack, GivesEveryTensorBackAsTheSourceHadIt) {
  SamplePack sample;
  must(sample.write());
  const UnpackLayout layout =
      must(unpack_pack(FileSystem::posix(), sample.target(), sample.dir() / "out", no_reserve()));
  EXPECT_THAT(layout.normalized, IsEmpty());
  EXPECT_THAT(names_in(sample.dir() / "out"), ElementsAre("model.safetensors"));
  const Checkpoint unpacked = must(Checkpoint::open(sample.dir() / "out"));
  EXPECT_TRUE(contents_of(unpacked) == contents_of(sample.checkpoint()));
  EXPECT_FALSE(std::filesystem::exists(sample.dir() / "out.partial"));
}

TEST(UnpackPack, NarrowsEveryF16ThatWasWidened) {
  std::vector<std::uint16_t> all(65'536);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::uint16_t>(i);
  }
  const testing::TempDir dir;
  SafetensorsBuilder builder;
  builder.add_random("w", Dtype::kF8E4M3, {256, 256});
  builder.add("w_scale", Dtype::kF16, {256, 256}, testing::bytes_of(all));
  builder.write(dir / "model.safetensors");
  const Checkpoint checkpoint = must(Checkpoint::open(dir / "model.safetensors"));
  WeightTable weights;
  weights.weights.push_back({.name = "w",
                             .tensor_index = 0,
                             .dtype = Dtype::kF8E4M3,
                             .scale = WeightScale{.tensor_index = 1,
                                                  .granularity = Granularity::kBlock,
                                                  .shape = {256, 256},
                                                  .block_shape = {1, 1},
                                                  .transform = ScaleTransform::kNone}});
  const PackLayout layout = {.extents = {{.name = "block", .tier = Tier::kDisk, .weights = {0}}},
                             .aliases = {},
                             .plan_toml = ""};
  PackOptions pack;
  pack.reserve_bytes = 0;
  must(write_pack(FileSystem::posix(), checkpoint, weights, layout, dir / "pack", pack));
  must(unpack_pack(FileSystem::posix(), dir / "pack", dir / "out", no_reserve()));
  EXPECT_TRUE(contents_of(must(Checkpoint::open(dir / "out"))) == contents_of(checkpoint));
}

TEST(UnpackPack, KeepsFilesIndexAndMetadata) {
  const testing::TempDir dir;
  SafetensorsBuilder first;
  first.metadata("format", "pt").metadata("who", "me");
  first.add_random("layers.0.w", Dtype::kBf16, {4, 4}).add_random("layers.0.b", Dtype::kF32, {4});
  first.write(dir / "model-00001-of-00002.safetensors");
  SafetensorsBuilder second;
  second.add_random("layers.1.w", Dtype::kBf16, {4, 4}).add_random("step", Dtype::kI64, {});
  second.write(dir / "model-00002-of-00002.safetensors");
  testing::write_index(dir / "model.safetensors.index.json",
                       {{"layers.0.w", "model-00001-of-00002.safetensors"},
                        {"layers.0.b", "model-00001-of-00002.safetensors"},
                        {"layers.1.w", "model-00002-of-00002.safetensors"},
                        {"step", "model-00002-of-00002.safetensors"}});
  PackedCheckpoint packed(dir.path());
  must(packed.unpack());
  EXPECT_THAT(names_in(packed.dir / "out"),
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json"));
  const Checkpoint unpacked = must(Checkpoint::open(packed.dir / "out"));
  EXPECT_TRUE(contents_of(unpacked) == contents_of(packed.checkpoint));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(unpacked.files()[i].metadata, packed.checkpoint.files()[i].metadata);
  }
  EXPECT_EQ(json_in(packed.dir / "out/model.safetensors.index.json"),
            json_in(dir / "model.safetensors.index.json"));
}

TEST(UnpackPack, KeepsNameAndMembersOfTheIndex) {
  const testing::TempDir dir;
  SafetensorsBuilder builder;
  builder.add_random("a", Dtype::kU8, {4}).add_random("b", Dtype::kU8, {5});
  builder.write(dir / "unet-00001-of-00001.safetensors");
  // One shard, a total that is wrong, numbers that no double holds, other members on both sides.
  const std::string index_name = "unet.safetensors.index.fp16.json";
  testing::write_text(dir / index_name,
                      R"({ "about": ["x", {"y": 18446744073709551615}],
  "weight_map": {"a": "unet-00001-of-00001.safetensors",
                 "b": "unet-00001-of-00001.safetensors"},
  "metadata" : { "total_size": 77, "who" : "me, \"}, " } , "last": null })");
  PackedCheckpoint packed(dir / index_name);
  EXPECT_EQ(packed.checkpoint.index()->members,
            R"({"about":["x",{"y":18446744073709551615}],)"
            R"("metadata":{"total_size":77,"who":"me, \"}, "},"last":null})");
  must(packed.unpack());
  EXPECT_THAT(names_in(packed.dir / "out"),
              ElementsAre("unet-00001-of-00001.safetensors", index_name));
  EXPECT_EQ(json_in(packed.dir / "out" / index_name), json_in(dir / index_name));

  std::filesystem::remove_all(packed.dir / "out");
  UnpackOptions limited = no_reserve();
  limited.file_bytes_max = 5;
  must(packed.unpack(limited));
  EXPECT_THAT(names_in(packed.dir / "out"),
              ElementsAre("unet-00001-of-00002.safetensors", "unet-00002-of-00002.safetensors",
                          index_name));
  EXPECT_EQ(json_in(packed.dir / "out" / index_name)["metadata"],
            json_in(dir / index_name)["metadata"]);
  EXPECT_TRUE(contents_of(must(Checkpoint::open(packed.dir / "out" / index_name))) ==
              contents_of(packed.checkpoint));
}

TEST(UnpackPack, GivesSafetensorsFilesAnIndexThatIsLookedFor) {
  Manifest manifest;
  manifest.source_files = {{.name = "pytorch_model-1.bin", .size_bytes = 1},
                           {.name = "pytorch_model-2.bin", .size_bytes = 1}};
  const std::string usual = "model.safetensors.index.json";
  for (const std::string name : {"pytorch_model.bin.index.json", "../x.index.json", "x.json", ""}) {
    manifest.source_index = CheckpointIndex{.name = name, .members = "{}"};
    const UnpackLayout layout = lay_out_unpacked(manifest, std::nullopt);
    EXPECT_EQ(layout.index->name, usual) << name;
    EXPECT_EQ(layout.files[0].name, "model-00001-of-00002.safetensors") << name;
  }
  manifest.source_index.reset();  // A pack that was made before packs said it.
  EXPECT_EQ(lay_out_unpacked(manifest, std::nullopt).index,
            (CheckpointIndex{.name = usual, .members = R"({"metadata":{"total_size":0}})"}));
}

TEST(UnpackPack, CountsAnewWhereTensorsAreNotTheSources) {
  SamplePack sample;
  Manifest manifest = must(sample.write());
  manifest.source_index =
      CheckpointIndex{.name = "model.safetensors.index.json",
                      .members = R"({"metadata":{"total_size":1.0,"total_parameters":5}})"};
  EXPECT_EQ(lay_out_unpacked(manifest, std::nullopt).index, manifest.source_index);
  manifest.left_out = {"gone"};
  const UnpackLayout layout = lay_out_unpacked(manifest, std::nullopt);
  const auto metadata = nlohmann::json::parse(layout.index->members)["metadata"];
  EXPECT_EQ(metadata["total_size"], sample.checkpoint().total_bytes());
  EXPECT_EQ(metadata["total_parameters"], 5);
}

TEST(UnpackPack, KeepsFilesWithoutTensorsAndMetadataWithoutEntries) {
  const testing::TempDir dir;
  SafetensorsBuilder()
      .add_random("w", Dtype::kU8, {3})
      .empty_metadata()
      .write(dir / "model-00001-of-00003.safetensors");
  SafetensorsBuilder().metadata("format", "pt").write(dir / "model-00002-of-00003.safetensors");
  SafetensorsBuilder()
      .add_random("v", Dtype::kU8, {3})
      .write(dir / "model-00003-of-00003.safetensors");
  PackedCheckpoint packed(dir.path());
  must(packed.unpack());
  for (const CheckpointFile& file : packed.checkpoint.files()) {
    EXPECT_EQ(read_text(packed.dir / "out" / file.name), read_text(dir / file.name)) << file.name;
  }
}

TEST(UnpackPack, NoticesThatThePackIsReplaced) {
  const testing::TempDir dir;
  SafetensorsBuilder builder;
  builder.add_random("t", Dtype::kU8, {300});
  builder.write(dir / "model.safetensors");
  PackedCheckpoint packed(dir / "model.safetensors");
  UnpackOptions options = no_reserve();
  options.progress = [&](const Progress& progress) {
    if (progress.done_bytes == progress.total_bytes) {
      std::filesystem::remove(packed.dir / "pack" / "manifest.json");
    }
  };
  const Result<UnpackLayout> unpacked = packed.unpack(options);
  ASSERT_FALSE(unpacked);
  EXPECT_EQ(unpacked.error().code(), ErrorCode::kStale);
  EXPECT_FALSE(std::filesystem::exists(packed.dir / "out"));
  EXPECT_FALSE(std::filesystem::exists(packed.dir / "out.partial"));
}

TEST(UnpackPack, FillsFilesUpToALimit) {
  const testing::TempDir dir;
  SafetensorsBuilder builder;
  for (const int size : {300, 300, 500, 2000, 10}) {
    builder.add_random(fmt::format("t{}", builder.tensors().size()), Dtype::kU8,
                       {static_cast<std::uint64_t>(size)});
  }
  builder.write(dir / "model.safetensors");
  PackedCheckpoint packed(dir / "model.safetensors");
  UnpackOptions limited = no_reserve();
  limited.file_bytes_max = 600;
  const UnpackLayout layout = must(packed.unpack(limited));
  ASSERT_EQ(layout.files.size(), 4U);
  EXPECT_EQ(layout.files[0].name, "model-00001-of-00004.safetensors");
  EXPECT_EQ(layout.files[0].tensors.size(), 2U);
  EXPECT_EQ(layout.files[2].tensors[0].name, "t3");
  for (const UnpackedFile& file : layout.files) {
    EXPECT_EQ(std::filesystem::file_size(packed.dir / "out" / file.name), file.size_bytes);
  }
  EXPECT_TRUE(contents_of(must(Checkpoint::open(packed.dir / "out"))) ==
              contents_of(packed.checkpoint));
}

/// How many reads this process has asked the system for; nothing where that isn't told.
std::optional<std::uint64_t> read_call_count() {
  std::ifstream counters("/proc/self/io");
  std::string key;
  std::uint64_t value = 0;
  while (counters >> key >> value) {
    if (key == "syscr:") {
      return value;
    }
  }
  return std::nullopt;
}

TEST(UnpackPack, ReadsSmallNeighboursTogether) {
  constexpr std::size_t kCount = 3000;
  const testing::TempDir dir;
  SafetensorsBuilder builder;
  WeightTable weights;
  PackLayout layout;
  for (std::size_t i = 0; i < kCount; ++i) {
    // In three extents, of sizes that are no multiple of anything; every tenth one is large.
    builder.add_random(fmt::format("t{:04}", i), Dtype::kU8, {i % 10 == 0 ? 3001 : 1 + i % 97});
  }
  builder.write(dir / "model.safetensors");
  const Checkpoint checkpoint = must(Checkpoint::open(dir / "model.safetensors"));
  layout.extents.resize(3);
  for (std::size_t i = 0; i < kCount; ++i) {
    ExtentLayout& extent = layout.extents[i * 3 / kCount];
    extent.name = fmt::format("layers.{}", i * 3 / kCount);
    extent.tier = Tier::kDisk;
    extent.weights.push_back(i);
    weights.weights.push_back({.name = checkpoint.tensors()[i].name,
                               .tensor_index = i,
                               .dtype = Dtype::kU8,
                               .scale = {}});
  }
  PackOptions pack;
  pack.reserve_bytes = 0;
  must(write_pack(FileSystem::posix(), checkpoint, weights, layout, dir / "pack", pack));
  const std::optional<std::uint64_t> before = read_call_count();
  must(unpack_pack(FileSystem::posix(), dir / "pack", dir / "out", no_reserve()));
  if (before) {
    EXPECT_LT(*read_call_count() - *before, kCount / 10);
  }
  EXPECT_TRUE(read_text(dir / "out/model.safetensors") == builder.file());
  EXPECT_THAT(must(compare_with_source(dir / "pack", checkpoint, weights, {})).mismatches,
              IsEmpty());
  // What differs is named, and nothing beside it.
  const Manifest manifest = must(read_manifest(dir / "pack"));
  const PackedExtent& extent = manifest.extents[1];
  const std::filesystem::path shard = dir / "pack" / manifest.shards[extent.shard_index].name;
  std::string bytes = read_text(shard);
  bytes[extent.offset_bytes + extent.tensors[500].offset_bytes] ^= 1;
  testing::write_text(shard, bytes);
  EXPECT_THAT(must(compare_with_source(dir / "pack", checkpoint, weights, {})).mismatches,
              ElementsAre(::testing::HasSubstr("\"t1500\" differs")));
}

TEST(UnpackPack, StoresAliasesThatTheSourceStored) {
  const testing::TempDir dir;
  SafetensorsBuilder builder;
  builder.add("embed.weight", Dtype::kU8, {4}, "abcd").add("head.weight", Dtype::kU8, {4}, "abcd");
  builder.write(dir / "model.safetensors");
  PackedCheckpoint packed(
      dir / "model.safetensors",
      {.extents = {},
       .aliases = {{"head.weight", "embed.weight"}, {"by_config.weight", "embed.weight"}},
       .plan_toml = ""});
  must(packed.unpack());
  EXPECT_TRUE(contents_of(must(Checkpoint::open(packed.dir / "out"))) ==
              contents_of(packed.checkpoint));
}

TEST(CompareAliases, ComparesThoseThatTheSourceStored) {
  const testing::TempDir dir;
  const std::filesystem::path path = dir / "model.safetensors";
  SafetensorsBuilder builder;
  builder.add("embed.weight", Dtype::kU8, {4}, "abcd").add("head.weight", Dtype::kU8, {4}, "abcd");
  builder.write(path);
  const PackedCheckpoint packed(
      path, {.extents = {}, .aliases = {{"head.weight", "embed.weight"}}, .plan_toml = ""});
  const auto mismatches = [&] {
    const Checkpoint source = must(Checkpoint::open(path));
    return must(compare_with_source(packed.dir / "pack", source, must(find_weights(source)), {}))
        .mismatches;
  };
  EXPECT_THAT(mismatches(), IsEmpty());
  std::string file = testing::read_text(path);
  file.back() = 'x';
  testing::write_text(path, file);
  EXPECT_THAT(mismatches(),
              ElementsAre(::testing::HasSubstr("\"head.weight\" differs from the source")));
}

TEST(UnpackPack, RefusesWhatExistsAndCleansUpWhenItFails) {
  SamplePack sample;
  must(sample.write());
  const auto out = sample.dir() / "out";
  std::uint64_t call_count = 0;
  {
    testing::FaultFileSystem counting;
    must(unpack_pack(counting, sample.target(), out, no_reserve()));
    call_count = counting.call_count();
  }
  EXPECT_EQ(unpack_pack(FileSystem::posix(), sample.target(), out, no_reserve()).error().code(),
            ErrorCode::kOutput);
  std::filesystem::remove_all(out);
  for (std::uint64_t call = 0; call < call_count; ++call) {
    SCOPED_TRACE(fmt::format("call {} of {}", call, call_count));
    testing::FaultFileSystem faulty;
    faulty.fail_call(call, ENOSPC);
    ASSERT_FALSE(unpack_pack(faulty, sample.target(), out, no_reserve()));
    EXPECT_FALSE(std::filesystem::exists(out));
    EXPECT_FALSE(std::filesystem::exists(sample.dir() / "out.partial"));
  }
  UnpackOptions stopped = no_reserve();
  const std::atomic<bool> stop = true;
  stopped.stop = &stop;
  EXPECT_EQ(unpack_pack(FileSystem::posix(), sample.target(), out, stopped).error().code(),
            ErrorCode::kInterrupted);
}

}  // namespace
}  // namespace trash_panda::format
