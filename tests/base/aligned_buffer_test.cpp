#include "trash_panda/base/aligned_buffer.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trash_panda/base/units.h"

#include "base/support/temp_dir.h"

namespace trash_panda {
namespace {

using trash_panda::testing::must;

std::uint64_t place_of(const AlignedBuffer& buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer.data());
}

TEST(AlignedBuffer, IsExactAndZero) {
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (const std::uint64_t size_bytes : {std::uint64_t{1}, page_bytes, 2 * kMiB - 1, 2 * kMiB,
                                         2 * kMiB + 1, 5 * kMiB + page_bytes}) {
    const AlignedBuffer buffer = must(AlignedBuffer::create(size_bytes));
    EXPECT_EQ(buffer.size_bytes(), must(round_up(size_bytes, page_bytes)));
    EXPECT_EQ(place_of(buffer) % page_bytes, 0U);
    EXPECT_TRUE(std::ranges::all_of(buffer.span(), [](std::byte b) { return b == std::byte{0}; }));
    buffer.span().front() = buffer.span().back() = std::byte{1};
  }
}

TEST(AlignedBuffer, LargeOnesLieOnHugePages) {
  EXPECT_EQ(place_of(must(AlignedBuffer::create(2 * kMiB))) % (2 * kMiB), 0U);
  EXPECT_EQ(place_of(must(AlignedBuffer::create(7 * kMiB + 5))) % (2 * kMiB), 0U);
}

TEST(AlignedBuffer, NothingAndTooMuch) {
  EXPECT_EQ(must(AlignedBuffer::create(0)).data(), nullptr);
  for (const std::uint64_t size_bytes :
       {std::uint64_t{1} << 60, std::numeric_limits<std::uint64_t>::max() - 2 * kMiB}) {
    const auto buffer = AlignedBuffer::create(size_bytes);
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().code(), ErrorCode::kFailed);
  }
}

}  // namespace
}  // namespace trash_panda
