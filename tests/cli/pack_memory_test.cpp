// Memory of commands that go through a whole model does not grow with it.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

/// What is promised, whatever the model.
constexpr std::uint64_t kPeakBytesMax = 200'000'000;
/// Lists of chunks grow with a model, by some bytes for each megabyte.
constexpr std::uint64_t kGrowthBytesMax = 8'000'000;

class PackMemory : public CliTest {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  }

  /// Writes a sparse checkpoint of matrices of 32 MiB, the last one of all that is left: so that
  /// one is larger than all buffers together.
  void write_sparse(const std::string& name, std::uint64_t size_bytes) const {
    constexpr std::uint64_t kRowBytes = 8192;
    constexpr std::uint64_t kLargeBlockBytes = 33'554'432;
    std::vector<std::string> tensors;
    std::uint64_t at = 0;
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t end = i < 2 ? at + kLargeBlockBytes : size_bytes;
      tensors.push_back(fmt::format(
          R"("layers.{}.weight":{{"dtype":"BF16","shape":[{},{}],"data_offsets":[{},{}]}})", i,
          (end - at) / kRowBytes, kRowBytes / 2, at, end));
      at = end;
    }
    const std::string header = fmt::format("{{{}}}", fmt::join(tensors, ","));
    write_text(path(name), bytes_of(std::vector<std::uint64_t>{header.size()}) + header);
    std::filesystem::resize_file(path(name), 8 + header.size() + size_bytes);
  }

  /// The peaks of packing, verifying, comparing and unpacking a model of that size.
  std::vector<std::uint64_t> peaks(std::uint64_t size_bytes, const std::string& compress) {
    write_sparse("sparse.safetensors", size_bytes);
    std::vector<std::uint64_t> peaks;
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"repack", "sparse.safetensors", "--compress", compress,
                                   "--reserve", "0"},
          {"verify", "sparse.panda"},
          {"verify", "sparse.panda", "--source", "sparse.safetensors"},
          {"unpack", "sparse.panda", "-o", "back", "--reserve", "0"}}) {
      const RunResult result = run(words);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      peaks.push_back(result.peak_bytes);
    }
    std::filesystem::remove_all(path("sparse.panda"));
    std::filesystem::remove_all(path("back"));
    return peaks;
  }
};

TEST_F(PackMemory, IsBoundedWhateverTheModel) {
  for (const std::string compress : {"none", "exponent"}) {
    const std::vector<std::uint64_t> small = peaks(100'663'296, compress);
    const std::vector<std::uint64_t> large = peaks(402'653'184, compress);
    for (std::size_t i = 0; i < small.size(); ++i) {
      SCOPED_TRACE(fmt::format("command {} of --compress {}", i, compress));
      EXPECT_LT(large[i], kPeakBytesMax);
      EXPECT_LT(large[i], small[i] + kGrowthBytesMax);
    }
  }
}

}  // namespace
}  // namespace trash_panda::testing
