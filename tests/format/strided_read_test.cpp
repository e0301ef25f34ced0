#include "strided_read.h"

#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/checkpoint_builder.h"

namespace trash_panda::format {
namespace {

using testing::random_bytes;
using testing::TempDir;
using testing::write_text;

/// A tensor with strides over a file of noise, read element by element for comparison.
struct StridedTensor {
  StridedTensor(Dtype dtype, Shape shape, Shape strides, std::uint64_t offset_elements = 3) {
    width_bytes = dtype_bits(dtype) / 8;
    std::uint64_t last = offset_elements;
    record = {.name = "t",
              .dtype = dtype,
              .shape = std::move(shape),
              .file_index = 0,
              .offset_bytes = offset_elements * width_bytes,
              .size_bytes = width_bytes,
              .strides = std::move(strides)};
    for (std::size_t i = 0; i < record.shape.size(); ++i) {
      record.size_bytes *= record.shape[i];
      last += (record.shape[i] - 1) * record.strides[i];
    }
    content = random_bytes((last + 1) * width_bytes, last);
    write_text(dir / "data", content);
  }

  [[nodiscard]] std::string expected() const {
    std::string bytes;
    bytes.reserve(record.size_bytes);
    for (std::uint64_t element = 0; element < record.size_bytes / width_bytes; ++element) {
      std::uint64_t rest = element;
      std::uint64_t source = 0;
      for (std::size_t i = record.shape.size(); i-- > 0;) {
        source += rest % record.shape[i] * record.strides[i];
        rest /= record.shape[i];
      }
      bytes.append(content, record.offset_bytes + source * width_bytes, width_bytes);
    }
    return bytes;
  }

  [[nodiscard]] std::string read(std::uint64_t offset_bytes, std::uint64_t size_bytes) const {
    const auto file = File::open(dir / "data");
    EXPECT_TRUE(file);
    std::string bytes(size_bytes, '\0');
    const auto result =
        read_strided(*file, record, offset_bytes, std::as_writable_bytes(std::span(bytes)));
    EXPECT_TRUE(result) << result.error().to_string();
    return bytes;
  }

  TempDir dir;
  TensorRecord record;
  std::uint64_t width_bytes;
  std::string content;
};

TEST(ReadStrided, GathersEveryPart) {
  const StridedTensor tensor(Dtype::kBf16, {3, 4, 5}, {1, 20, 4});
  const std::string expected = tensor.expected();
  // Parts that begin and end within elements, rows and planes.
  for (std::uint64_t begin = 0; begin < expected.size(); ++begin) {
    for (std::uint64_t end = begin; end <= expected.size(); ++end) {
      ASSERT_EQ(tensor.read(begin, end - begin), expected.substr(begin, end - begin))
          << begin << " to " << end;
    }
  }
}

TEST(ReadStrided, GathersTensorsLongerThanItsWindow) {
  // 6 MB transposed; rows of a wider matrix; one column of it, so far apart that nothing between
  // is read; one row again and again.
  for (const auto& [shape, strides] :
       std::vector<std::pair<Shape, Shape>>{{{1500, 1000}, {1, 1500}},
                                            {{1000, 1200}, {1700, 1}},
                                            {{300, 1}, {9000, 1}},
                                            {{1200, 1000}, {0, 2}},
                                            {{70, 1, 90, 50}, {50, 7, 3500, 1}}}) {
    const StridedTensor tensor(Dtype::kF32, shape, strides);
    EXPECT_TRUE(tensor.read(0, tensor.record.size_bytes) == tensor.expected())
        << to_string(shape) << " " << to_string(strides);
  }
}

TEST(ReadStrided, AgreesWithReadingElementByElement) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    Shape shape;
    Shape strides;
    for (std::uint64_t rank = random() % 5; rank > 0; --rank) {
      shape.push_back(1 + random() % 6);
      strides.push_back(random() % 400);
    }
    const Dtype dtype =
        std::vector{Dtype::kU8, Dtype::kF16, Dtype::kF32, Dtype::kC64}[random() % 4];
    const StridedTensor tensor(dtype, shape, strides, random() % 9);
    const std::string expected = tensor.expected();
    const std::uint64_t begin = random() % expected.size();
    const std::uint64_t size = random() % (expected.size() - begin) + 1;
    ASSERT_EQ(tensor.read(begin, size), expected.substr(begin, size))
        << to_string(shape) << " " << to_string(strides) << " from " << begin;
  }
}

TEST(ReadStrided, FailsWhereTheFileWasCut) {
  const StridedTensor tensor(Dtype::kF32, {10, 10}, {1, 10});
  write_text(tensor.dir / "data", tensor.content.substr(0, 300));
  const auto file = File::open(tensor.dir / "data");
  ASSERT_TRUE(file);
  std::string bytes(tensor.record.size_bytes, '\0');
  const auto result =
      read_strided(*file, tensor.record, 0, std::as_writable_bytes(std::span(bytes)));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().reason(), "truncated");
}

}  // namespace
}  // namespace trash_panda::format
