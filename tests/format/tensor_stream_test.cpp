#include "tensor_stream.h"

#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/format/chunk_code.h"

#include "base/support/temp_dir.h"
#include "bulk_reader.h"
#include "format/support/checkpoint_builder.h"

namespace trash_panda::format {
namespace {

/// The code of BF16 values, in chunks of so many elements.
std::string code_of(std::initializer_list<std::uint64_t> chunk_elements) {
  std::string code;
  for (const std::uint64_t count : chunk_elements) {
    const std::vector<std::uint16_t> raw(count, 0x3f80);
    std::vector<std::byte> coded(coded_bytes_max(TensorCoding::kExponent, Dtype::kBf16, 2 * count));
    const std::uint64_t size_bytes = testing::must(
        encode_chunks(TensorCoding::kExponent, Dtype::kBf16, std::as_bytes(std::span(raw)), coded));
    code.append(reinterpret_cast<const char*>(coded.data()), size_bytes);
  }
  return code;
}

/// Reads a tensor of 70,000 elements with this code to its end.
Result<void> read_all(const std::string& code) {
  constexpr std::uint64_t kElements = 70'000;
  const testing::TempDir dir;
  testing::write_text(dir / "disk-00001.safetensors", std::string(4096, '\0') + code);
  Manifest manifest;
  manifest.shards = {{.name = "disk-00001.safetensors",
                      .size_bytes = 4096 + code.size(),
                      .header_bytes = 4096,
                      .header_checksum = {}}};
  PackedExtent extent{};
  extent.offset_bytes = 4096;
  PackedTensor tensor{.name = "weight",
                      .dtype = Dtype::kBf16,
                      .shape = {kElements},
                      .offset_bytes = 0,
                      .size_bytes = 2 * kElements,
                      .scale = {},
                      .coding = TensorCoding::kExponent,
                      .stored_bytes = code.size()};
  TP_ASSIGN_OR_RETURN(TensorStream stream,
                      TensorStream::open(dir.path(), manifest, extent, tensor));
  TP_ASSIGN_OR_RETURN(const AlignedBuffer buffer,
                      AlignedBuffer::create(TensorStream::kPieceBytes + kBulkReadSlackBytes));
  TP_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                      stream.next(tensor.size_bytes, buffer.span()));
  EXPECT_EQ(bytes.size(), tensor.size_bytes);
  return {};
}

void expect_damaged(const std::string& code) {
  const Result<void> read = read_all(code);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(read.error().message(), "the code of \"weight\" is damaged");
}

TEST(TensorStream, DecodesWholeChunksAndAShorterLastOne) {
  EXPECT_TRUE(read_all(code_of({65'536, 4'464})));
}

TEST(TensorStream, RefusesAShorterChunkThatIsNotTheLast) {
  expect_damaged(code_of({10'000, 60'000}));
}

TEST(TensorStream, RefusesBytesBehindTheCode) {
  expect_damaged(code_of({65'536, 4'464}) + std::string(64, '\0'));
  expect_damaged(code_of({65'536, 4'464, 64}));
}

}  // namespace
}  // namespace trash_panda::format
