// The pack format is what the golden pack says. A change here is a change of format: it takes a new
// version, and docs/pack_format.md, schema, reader and writer in the same commit.
//
// To write the files anew: TP_UPDATE_GOLDEN=1 tests_format --gtest_filter='PackGolden.*', then
// tests/format/golden_bad/make.py.

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/pack_verify.h"

#include "format/support/golden.h"

namespace trash_panda::format {
namespace {

using testing::golden_bad_path;
using testing::golden_path;
using testing::GoldenPack;
using ::testing::HasSubstr;
using testing::must;
using testing::read_text;

std::set<std::string> file_names(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename());
  }
  return names;
}

/// Compares a folder with the golden one of its name; writes that when told to.
void expect_golden_folder(const std::filesystem::path& folder) {
  const std::filesystem::path golden = golden_path() / folder.filename();
  if (std::getenv("TP_UPDATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(golden);
    std::filesystem::copy(folder, golden,
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
  }
  ASSERT_EQ(file_names(folder), file_names(golden));
  for (const std::string& name : file_names(golden)) {
    EXPECT_TRUE(read_text(folder / name) == read_text(golden / name)) << name;
  }
}

/// The same for a pack and the file that is its source.
template <class Pack>
void expect_golden(const Pack& pack, const std::string& source_name) {
  if (std::getenv("TP_UPDATE_GOLDEN") != nullptr) {
    testing::write_text(golden_path() / source_name, pack.source());
  }
  EXPECT_TRUE(pack.source() == read_text(golden_path() / source_name));
  expect_golden_folder(pack.path());
}

TEST(PackGolden, IsWrittenByteForByte) {
  expect_golden(GoldenPack(), "source.safetensors");
  expect_golden(testing::GoldenCodedPack(), "source_exponent.safetensors");
  const testing::GoldenIndexPack index;
  expect_golden_folder(index.path());
  expect_golden_folder(index.source());
}

/// Other versions of libzstd make other frames, so the bytes of these are what is read, not what is
/// written.
TEST(PackGolden, OfZstdHasTheSameTensors) {
  const testing::GoldenZstdPack pack;
  if (std::getenv("TP_UPDATE_GOLDEN") != nullptr) {
    expect_golden(pack, "source_zstd.safetensors");
  }
  EXPECT_TRUE(pack.source() == read_text(golden_path() / "source_zstd.safetensors"));
  for (const std::filesystem::path& path : {golden_path() / "v1_zstd.panda", pack.path()}) {
    const Manifest manifest = must(read_manifest(path));
    EXPECT_EQ(manifest.extents[0].codec, kCodecZstd);
    EXPECT_EQ(manifest.extents[1].codec, kCodecZstd);
    std::set<TensorCoding> codings;
    for (const PackedTensor& tensor : manifest.extents[1].tensors) {
      codings.insert(tensor.coding);
    }
    EXPECT_EQ(codings.size(), 3U);
    EXPECT_THAT(must(compare_with_source(path, pack.checkpoint(), pack.weights(), {})).mismatches,
                ::testing::IsEmpty());
  }
}

TEST(PackGolden, IsReadAndVerified) {
  for (const char* name :
       {"v1_raw.panda", "v1_index.panda", "v1_exponent.panda", "v1_zstd.panda"}) {
    const std::filesystem::path golden = golden_path() / name;
    const Manifest manifest = must(read_manifest(golden));
    EXPECT_EQ(write_manifest(manifest), read_text(golden / kManifestName));
    EXPECT_THAT(must(verify_pack(golden, {})).mismatches, ::testing::IsEmpty());
  }
}

TEST(PackGolden, DecodesToItsSource) {
  const std::filesystem::path golden = golden_path() / "v1_exponent.panda";
  const Checkpoint source = must(Checkpoint::open(golden_path() / "source_exponent.safetensors"));
  WeightTable weights;
  for (std::size_t i = 0; i < source.tensors().size(); ++i) {
    weights.weights.push_back({.name = source.tensors()[i].name,
                               .tensor_index = i,
                               .dtype = source.tensors()[i].dtype,
                               .scale = {}});
  }
  EXPECT_THAT(must(compare_with_source(golden, source, weights, {})).mismatches,
              ::testing::IsEmpty());
}

TEST(PackGolden, SaysWhereTensorsAre) {
  const Manifest manifest = must(read_manifest(golden_path() / "v1_raw.panda"));
  const PackedExtent& block = manifest.extents[3];
  EXPECT_EQ(block.name, "layers.2");
  EXPECT_EQ(block.tier, Tier::kDisk);
  EXPECT_EQ(manifest.shards[block.shard_index].name, "disk-00001.safetensors");
  const std::string shard =
      read_text(golden_path() / "v1_raw.panda" / manifest.shards[block.shard_index].name);
  EXPECT_EQ(
      shard.substr(block.offset_bytes + block.tensors[0].offset_bytes, block.tensors[0].size_bytes),
      "\x40\x41\x42\x43\x44\x45");
  EXPECT_EQ(
      shard.substr(block.offset_bytes + block.tensors[1].offset_bytes, block.tensors[1].size_bytes),
      testing::bytes_of(std::vector<float>{0.5F, 2.0F}));
}

TEST(PackGolden, KeepsExponentCodesOfMxScales) {
  const Manifest manifest = must(read_manifest(golden_path() / "v1_raw.panda"));
  const PackedExtent& block = manifest.extents[4];
  ASSERT_EQ(block.name, "layers.3");
  const PackedTensor& scale = block.tensors[1];
  EXPECT_EQ(scale.name, "layers.3.weight_scale");
  EXPECT_EQ(scale.dtype, Dtype::kF8E8M0);
  EXPECT_EQ(scale.shape, (Shape{2, 2}));
  const std::string shard =
      read_text(golden_path() / "v1_raw.panda" / manifest.shards[block.shard_index].name);
  EXPECT_EQ(shard.substr(block.offset_bytes + scale.offset_bytes, scale.size_bytes),
            "\x7e\x7f\x80\xff");
}

/// The dumps of the document show the golden shard, not something like it.
TEST(PackGolden, IsWhatTheDocumentShows) {
  const std::string shard = read_text(golden_path() / "v1_raw.panda" / "disk-00001.safetensors");
  std::istringstream document(read_text(golden_path() / "../../../docs/pack_format.md"));
  std::size_t shown_bytes = 0;
  for (std::string line; std::getline(document, line);) {
    static const std::regex kDumpLine("^([0-9a-f]{4})  ((?:[0-9a-f]{2} )+).*");
    std::smatch match;
    if (!std::regex_match(line, match, kDumpLine)) {
      continue;
    }
    std::size_t at = std::stoul(match[1], nullptr, 16);
    std::istringstream bytes(match[2]);
    for (std::string byte; bytes >> byte; ++at, ++shown_bytes) {
      ASSERT_LT(at, shard.size()) << line;
      EXPECT_EQ(std::stoul(byte, nullptr, 16), static_cast<unsigned char>(shard[at])) << line;
    }
  }
  EXPECT_GT(shown_bytes, 80U);
}

/// So do the parts of a manifest that it shows: all but the indentation.
TEST(PackGolden, HasTheManifestThatTheDocumentShows) {
  const std::string manifest = read_text(golden_path() / "v1_raw.panda" / kManifestName);
  std::istringstream document(read_text(golden_path() / "../../../docs/pack_format.md"));
  std::size_t shown_lines = 0;
  for (std::string line; std::getline(document, line);) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos && line.substr(begin).starts_with("{\"name\":")) {
      EXPECT_THAT(manifest, HasSubstr(line.substr(begin)));
      ++shown_lines;
    }
  }
  EXPECT_EQ(shown_lines, 6U);
}

struct Defect {
  std::string name;  ///< Of the file in golden_bad, without ".json".
  ErrorCode code;
  std::string reason;
  std::string message;  ///< A part of it.
};

void PrintTo(const Defect& defect, std::ostream* out) {
  *out << defect.name;
}

const std::vector<Defect>& defects() {
  constexpr ErrorCode kCorrupt = ErrorCode::kCorrupt;
  constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;
  static const std::vector<Defect> list = {
      {"alias_is_stored", kCorrupt, "duplicate", "\"layers.0.weight\" is an alias and a stored"},
      {"alias_target_missing", kCorrupt, "missing_tensor", "alias of \"gone.weight\""},
      {"coded_coding_unknown", kUnsupported, "schema", "coding is \"huffman\""},
      {"coded_integers", kCorrupt, "schema", "of I16 can't be in the exponent code"},
      {"coded_place_missing", kCorrupt, "schema", "stored_offset_bytes is missing"},
      {"coded_place_overlaps", kCorrupt, "offsets", "stored bytes at 0 is not inside [6, "},
      {"coded_place_past_extent", kCorrupt, "offsets", "stored bytes at 9223372036854775808"},
      {"coded_place_unaligned", kCorrupt, "alignment", "is stored at 320, which is no multiple"},
      {"coded_raw_of_other_size", kCorrupt, "size_mismatch", "8 bytes stored and 6 decoded"},
      {"coded_size_too_large", kCorrupt, "size_mismatch",
       "can't be in an exponent code of 2560000"},
      {"coded_size_too_small", kCorrupt, "size_mismatch", "can't be in an exponent code of 64"},
      {"coded_size_unaligned", kCorrupt, "size_mismatch", "can't be in an exponent code of 30001"},
      {"coded_zstd_among_exponents", kCorrupt, "schema",
       "coding is \"zstd\" in an extent of codec \"exponent\""},
      {"coded_zstd_scale", kCorrupt, "schema", "of F32 can't be in the zstd code"},
      {"coded_zstd_too_large", kCorrupt, "size_mismatch", "can't be in a zstd code of 40384"},
      {"coded_zstd_too_small", kCorrupt, "size_mismatch", "can't be in a zstd code of 64"},
      {"extent_after_end", kCorrupt, "offsets", "\"base\" of 4096 bytes at 8192 is not inside"},
      {"extent_base_after_block", kCorrupt, "schema", "\"base\" comes after a block"},
      {"extent_checksum_short", kCorrupt, "schema", "extents[0].xxh3_128 is not a checksum"},
      {"extent_codec_unknown", kUnsupported, "schema", "codec is \"lzma\""},
      {"extent_empty", kCorrupt, "offsets", "\"base\" of 0 bytes"},
      {"extent_hole", kCorrupt, "offsets", "\"layers.2\" starts at 12288, but what is before"},
      {"extent_in_header", kCorrupt, "offsets", "\"base\" of 4096 bytes at 0 is not inside"},
      {"extent_length_wraps", kCorrupt, "offsets", "18446744073709547520 bytes at 4096"},
      {"extent_name_twice", kCorrupt, "duplicate", "two extents are named \"layers.0\""},
      {"extent_overlap", kCorrupt, "offsets", "\"layers.2\" starts at 4096, but what is before"},
      {"extent_raw_size_differs", kCorrupt, "size_mismatch", "4096 bytes stored and 8192 decoded"},
      {"extent_shard_out_of_range", kCorrupt, "offsets", "\"base\" names shard 4 of 4"},
      {"extent_tier_unknown", kUnsupported, "schema", "tier is \"tape\""},
      {"extent_unaligned", kCorrupt, "alignment", "\"base\" of 4096 bytes at 4352"},
      {"extent_without_tensors", kCorrupt, "schema", "\"base\" has no tensors"},
      {"feature_unknown", kUnsupported, "schema", "required_features is \"time-travel\""},
      {"format_missing", kCorrupt, "schema", "format is missing"},
      {"format_other", kCorrupt, "schema", "format is \"grizzly/pack\""},
      {"index_is_no_object", kCorrupt, "schema",
       "source_index.members is not the text of a JSON object"},
      {"index_is_no_text", kCorrupt, "schema", "source_index.members is not a string"},
      {"index_with_weight_map", kCorrupt, "schema", "JSON object without a weight_map"},
      {"index_without_name", kCorrupt, "schema", "source_index.name is missing"},
      {"key_twice", kCorrupt, "schema", "has the key \"page_bytes\" twice"},
      {"not_an_object", kCorrupt, "schema", "is not an object"},
      {"not_json", kCorrupt, "json", "is not valid JSON"},
      {"page_bytes_no_power_of_two", kCorrupt, "alignment", "page_bytes is 12288"},
      {"page_bytes_too_small", kCorrupt, "alignment", "page_bytes is 512"},
      {"scale_dtype", kCorrupt, "scale_dtype", "\"layers.0.weight_scale\" is I32; per row it has"},
      {"scale_dtype_mx", kCorrupt, "scale_dtype", "of [1, 32] it has to be F32 or F8_E8M0"},
      {"scale_exponents_per_block", kCorrupt, "scale_dtype", "is F8_E8M0; per block of [2, 32]"},
      {"scale_exponents_per_row", kCorrupt, "scale_dtype", "is F8_E8M0; per row it has to be F32"},
      {"scale_granularity_unknown", kUnsupported, "schema", "granularity is \"diagonal\""},
      {"scale_in_other_extent", kCorrupt, "scale_missing", "lacks \"layers.0.weight_scale\""},
      {"scale_missing", kCorrupt, "scale_missing", "lacks \"layers.0.weight_scale\""},
      {"scale_of_nothing", kCorrupt, "schema", "4 tensors are scales, but 3 have one"},
      {"scale_shape", kCorrupt, "scale_shape", "of shape [1, 2] does not fit"},
      {"seal_missing", kCorrupt, "schema", "manifest_xxh3_128 is missing"},
      {"seal_wrong", kCorrupt, "checksum", "was damaged or edited"},
      {"shard_ends_in_header", kCorrupt, "size_mismatch", "size of 0 bytes is less"},
      {"shard_header_too_large", kCorrupt, "header_too_large", "over the limit of 100000000"},
      {"shard_header_unaligned", kCorrupt, "alignment", "header of 4000 and size of 8192"},
      {"shard_name_twice", kCorrupt, "duplicate", "two shards are named"},
      {"shard_name_with_path", kCorrupt, "unsafe_path", "../base-00001.safetensors"},
      {"shard_not_covered", kCorrupt, "trailing", "its extents end at 8192, but it has 12288"},
      {"source_file_out_of_range", kCorrupt, "schema", "is from source file 7 of 1"},
      {"source_wider", kCorrupt, "schema", "of BF16 can't give the F64 of its source"},
      {"stored_alias_is_none", kCorrupt, "schema", "stored alias \"head.weight\" is no alias"},
      {"tensor_dtype_unknown", kUnsupported, "schema", "dtype is \"F7\""},
      {"tensor_name_of_a_code", kCorrupt, "schema", "\"__coded__.x\" is reserved"},
      {"tensor_name_reserved", kCorrupt, "schema", "\"__pad__.x\" is reserved"},
      {"tensor_name_twice", kCorrupt, "duplicate", "two tensors are named \"layers.0.weight\""},
      {"tensor_offset_fraction", kCorrupt, "schema", "offset_bytes is not a whole number"},
      {"tensor_offset_negative", kCorrupt, "schema", "offset_bytes is negative"},
      {"tensor_overlap", kCorrupt, "offsets", "\"layers.0.weight_scale\" of 8 bytes at 0"},
      {"tensor_past_extent", kCorrupt, "offsets", "\"embed.weight\" of 16 bytes at 4096"},
      {"tensor_shape_overflow", kCorrupt, "size_mismatch", "no whole number that fits 64 bits"},
      {"tensor_size_mismatch", kCorrupt, "size_mismatch", "says 12 bytes, but F32 of shape [2, 2]"},
      {"tensor_unaligned", kCorrupt, "alignment", "\"embed.weight\" is at 8"},
      {"version_2", kUnsupported, "version", "version is 2; this program reads 1"},
  };
  return list;
}

class PackGoldenBad : public ::testing::TestWithParam<Defect> {};

TEST_P(PackGoldenBad, IsRefusedByName) {
  const Defect& defect = GetParam();
  const std::string text = read_text(golden_bad_path() / (defect.name + ".json"));
  const Result<Manifest> parsed = parse_manifest(text, "manifest.json");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code(), defect.code) << parsed.error().message();
  EXPECT_EQ(parsed.error().reason(), defect.reason) << parsed.error().message();
  EXPECT_THAT(parsed.error().message(), ::testing::StartsWith("manifest.json"));
  EXPECT_THAT(parsed.error().message(), HasSubstr(defect.message));
}

INSTANTIATE_TEST_SUITE_P(Defects, PackGoldenBad, ::testing::ValuesIn(defects()),
                         [](const auto& instance) { return instance.param.name; });

TEST(PackGoldenBadFiles, AreAllTested) {
  std::set<std::string> expected = {"make.py"};
  for (const Defect& defect : defects()) {
    expected.insert(defect.name + ".json");
  }
  EXPECT_EQ(file_names(golden_bad_path()), expected);
}

}  // namespace
}  // namespace trash_panda::format
