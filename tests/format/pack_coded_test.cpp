// Packs of codec "exponent": that they hold what the source holds, whoever reads them.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/exponent_code.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/format/pack_unpack.h"
#include "trash_panda/format/pack_verify.h"

#include "format/support/coded_sample.h"
#include "format/support/fault_file_system.h"
#include "tensor_stream.h"

namespace trash_panda::format {
namespace {

using testing::CodedSample;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::must;
using testing::read_text;

std::string decoded(const std::filesystem::path& pack, const Manifest& manifest,
                    const PackedExtent& extent, const PackedTensor& tensor) {
  TensorStream stream = must(TensorStream::open(pack, manifest, extent, tensor));
  const AlignedBuffer buffer =
      must(AlignedBuffer::create(TensorStream::kPieceBytes + kBulkReadSlackBytes));
  const std::span<const std::byte> bytes = must(stream.next(tensor.size_bytes, buffer.span()));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const PackedTensor& tensor_of(const Manifest& manifest, std::string_view name) {
  for (const PackedExtent& extent : manifest.extents) {
    const auto found = std::ranges::find(extent.tensors, name, &PackedTensor::name);
    if (found != extent.tensors.end()) {
      return *found;
    }
  }
  throw std::runtime_error("no tensor " + std::string(name));
}

TEST(CodedPack, HoldsEveryTensor) {
  CodedSample sample;
  const Manifest manifest = must(sample.write());
  std::map<std::string, std::string> found;
  for (const PackedExtent& extent : manifest.extents) {
    for (const PackedTensor& tensor : extent.tensors) {
      found[tensor.name] = decoded(sample.target(), manifest, extent, tensor);
    }
  }
  EXPECT_TRUE(found == sample.tensors());
}

TEST(CodedPack, CodesLargeFloatsWithoutScalesOnly) {
  CodedSample sample;
  const Manifest manifest = must(sample.write());
  std::vector<std::string> coded;
  for (const PackedExtent& extent : manifest.extents) {
    for (const PackedTensor& tensor : extent.tensors) {
      if (tensor.coding == TensorCoding::kExponent) {
        coded.push_back(tensor.name);
      }
    }
  }
  EXPECT_THAT(coded, ElementsAre("embed.weight", "layers.0.w", "layers.0.noise", "layers.0.f32",
                                 "layers.1.w", "layers.1.noise", "layers.1.f32"));
  EXPECT_EQ(manifest.extents[3].codec, kCodecRaw);
  const PackedTensor& weight = tensor_of(manifest, "layers.0.w");
  EXPECT_LT(static_cast<double>(weight.stored_bytes), 0.7 * static_cast<double>(weight.size_bytes));
  const PackedTensor& noise = tensor_of(manifest, "layers.0.noise");
  EXPECT_LE(noise.stored_bytes, noise.size_bytes + 128);
}

TEST(CodedPack, VerifiesAndEqualsItsSource) {
  CodedSample sample;
  const Manifest manifest = must(sample.write());
  EXPECT_EQ(write_manifest(must(read_manifest(sample.target()))), write_manifest(manifest));
  EXPECT_THAT(must(verify_pack(sample.target(), {})).mismatches, IsEmpty());
  EXPECT_THAT(must(compare_with_source(sample.target(), sample.checkpoint(), sample.weights(), {}))
                  .mismatches,
              IsEmpty());
}

TEST(CodedPack, IsMadeOfSafetensorsFilesThatNameNoCodeAsAWeight) {
  CodedSample sample;
  const Manifest manifest = must(sample.write());
  std::map<std::string, std::string> raw;
  for (const PackedShard& shard : manifest.shards) {
    const Checkpoint opened = must(Checkpoint::open(sample.target() / shard.name));
    for (std::size_t i = 0; i < opened.tensors().size(); ++i) {
      const TensorRecord& tensor = opened.tensors()[i];
      if (tensor.name.starts_with(kCodedPrefix)) {
        const PackedTensor& packed = tensor_of(manifest, tensor.name.substr(kCodedPrefix.size()));
        EXPECT_EQ(packed.coding, TensorCoding::kExponent);
        EXPECT_EQ(tensor.dtype, Dtype::kU8);
        EXPECT_EQ(tensor.shape, Shape{packed.stored_bytes});
      } else if (!tensor.name.starts_with(kPadPrefix)) {
        std::string bytes(tensor.size_bytes, '\0');
        must(opened.read_tensor(i, std::as_writable_bytes(std::span(bytes))));
        EXPECT_TRUE(bytes == sample.tensors().at(std::string(tensor.name))) << tensor.name;
        EXPECT_EQ(tensor_of(manifest, std::string(tensor.name)).coding, TensorCoding::kRaw);
      }
    }
  }
}

TEST(CodedPack, IsTheSameWheneverItIsWritten) {
  CodedSample sample;
  must(sample.write());
  must(write_pack(FileSystem::posix(), sample.checkpoint(), sample.weights(), sample.layout(),
                  sample.dir() / "again.panda", sample.options()));
  for (const auto& entry : std::filesystem::directory_iterator(sample.target())) {
    EXPECT_TRUE(read_text(entry.path()) ==
                read_text(sample.dir() / "again.panda" / entry.path().filename()))
        << entry.path();
  }
}

TEST(CodedPack, UnpacksToItsSource) {
  CodedSample sample;
  must(sample.write());
  UnpackOptions options;
  options.reserve_bytes = 0;
  must(unpack_pack(FileSystem::posix(), sample.target(), sample.dir() / "out", options));
  const Checkpoint unpacked = must(Checkpoint::open(sample.dir() / "out"));
  ASSERT_EQ(unpacked.tensors().size(), sample.tensors().size());
  for (std::size_t i = 0; i < unpacked.tensors().size(); ++i) {
    std::string bytes(unpacked.tensors()[i].size_bytes, '\0');
    must(unpacked.read_tensor(i, std::as_writable_bytes(std::span(bytes))));
    EXPECT_TRUE(bytes == sample.tensors().at(std::string(unpacked.tensors()[i].name)))
        << unpacked.tensors()[i].name;
  }
}

TEST(CodedPack, NamesTheTensorWhoseCodeIsDamaged) {
  CodedSample sample;
  const Manifest manifest = must(sample.write());
  const PackedExtent& extent = manifest.extents[1];
  const PackedTensor& weight = tensor_of(manifest, "layers.0.w");
  const std::filesystem::path path = sample.target() / manifest.shards[extent.shard_index].name;
  std::string text = read_text(path);
  // The head of its first chunk.
  std::memset(text.data() + extent.offset_bytes + weight.stored_offset_bytes, 0xff, 16);
  testing::write_text(path, text);
  EXPECT_THAT(must(compare_with_source(sample.target(), sample.checkpoint(), sample.weights(), {}))
                  .mismatches,
              ElementsAre(HasSubstr("extent \"layers.0\": \"layers.0.w\" ")));
  EXPECT_THAT(must(verify_pack(sample.target(), {})).mismatches,
              ElementsAre(HasSubstr("extent \"layers.0\" differs")));
}

TEST(CodedPack, IsTakenOnWithAfterAnyPowerCut) {
  CodedSample undisturbed;
  must(undisturbed.write());
  std::uint64_t call_count = 0;
  {
    CodedSample counted;
    testing::FaultFileSystem file_system;
    must(counted.write(file_system));
    call_count = file_system.call_count();
  }
  std::size_t resumed_count = 0;
  for (std::uint64_t call = 0; call < call_count; call += 2) {
    SCOPED_TRACE(fmt::format("power cut at call {} of {}", call, call_count));
    CodedSample sample;
    testing::FaultFileSystem file_system;
    file_system.cut_power_at(call);
    EXPECT_FALSE(sample.write(file_system));
    file_system.lose(testing::Loss::kSomeData);
    if (!std::filesystem::exists(sample.target())) {
      resumed_count += pack_can_resume(sample.target()) ? 1U : 0U;
      must(sample.write());
    }
    for (const PackedShard& shard : must(read_manifest(sample.target())).shards) {
      EXPECT_TRUE(read_text(sample.target() / shard.name) ==
                  read_text(undisturbed.target() / shard.name))
          << shard.name;
    }
  }
  EXPECT_GT(resumed_count, 5U);
}

/// Manifests that say what can't be of a coded tensor.
class CodedManifest : public ::testing::Test {
 protected:
  CodedManifest() : manifest_(must(sample_.write())) {}

  PackedTensor& weight() { return manifest_.extents[1].tensors[1]; }

  void expect_refused(const std::string& message) {
    const Result<Manifest> parsed = parse_manifest(write_manifest(manifest_), "manifest.json");
    ASSERT_FALSE(parsed) << message;
    EXPECT_EQ(parsed.error().code(), ErrorCode::kCorrupt);
    EXPECT_THAT(parsed.error().message(), HasSubstr(message));
  }

  CodedSample sample_;
  Manifest manifest_;
};

TEST_F(CodedManifest, RefusesCodesOfImpossibleSizes) {
  ASSERT_EQ(weight().name, "layers.0.w");
  for (const std::uint64_t size_bytes :
       {std::uint64_t{0}, weight().size_bytes / 2 / 64 * 64 - 64, weight().stored_bytes + 1,
        weight().size_bytes + 1'000'000 / 64 * 64}) {
    weight().stored_bytes = size_bytes;
    expect_refused("\"layers.0.w\" of 263168 bytes can't be in an exponent code of");
  }
}

TEST_F(CodedManifest, RefusesPlacesThatOverlap) {
  weight().stored_offset_bytes = 0;
  expect_refused("tensor \"layers.0.w\"");
}

TEST_F(CodedManifest, RefusesPlacesThatAreNotAligned) {
  weight().stored_offset_bytes += 64;
  expect_refused("no multiple of 256");
}

TEST_F(CodedManifest, RefusesPlacesBehindTheExtent) {
  manifest_.extents[1].tensors.back().stored_offset_bytes = manifest_.extents[1].stored_bytes + 256;
  expect_refused("is not inside");
}

TEST_F(CodedManifest, RefusesCodesOfOtherDtypes) {
  PackedTensor& fp8 = manifest_.extents[1].tensors[4];
  ASSERT_EQ(fp8.name, "layers.0.fp8");
  fp8.coding = TensorCoding::kExponent;
  expect_refused("\"layers.0.fp8\" of F8_E4M3 with a scale can't be in the exponent code");
}

TEST_F(CodedManifest, RefusesReservedNames) {
  manifest_.extents[1].tensors[0].name = "__coded__.norm";
  expect_refused("is reserved");
}

}  // namespace
}  // namespace trash_panda::format
