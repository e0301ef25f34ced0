#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "format/support/checkpoint_builder.h"
#include "program.h"

namespace trash_panda::testing {

/// A folder with a small checkpoint, `model.safetensors`: an embedding and four layers.
class CliTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBlockCount = 4;
  static constexpr std::uint64_t kBlockBytes = 64 * 64 * 2 + 64 * 2;  ///< bf16 weight and bias.
  static constexpr std::uint64_t kEmbeddingBytes = 100 * 64 * 2;

  CliTest() { write_model(folder_ / "model.safetensors"); }

  static void write_model(const std::filesystem::path& path) {
    SafetensorsBuilder builder;
    builder.add_random("embed.weight", format::Dtype::kBf16, {100, 64});
    for (std::uint64_t i = 0; i < kBlockCount; ++i) {
      builder.add_random(fmt::format("layers.{}.up.weight", i), format::Dtype::kBf16, {64, 64});
      builder.add_random(fmt::format("layers.{}.up.bias", i), format::Dtype::kBf16, {64});
    }
    builder.write(path);
  }

  /// Runs trash-panda in the folder.
  [[nodiscard]] RunResult run(const std::vector<std::string>& arguments,
                              const std::map<std::string, std::string>& environment = {}) const {
    return run_program(arguments,
                       {.folder = folder_.path(), .environment = environment, .program = {}});
  }

  [[nodiscard]] std::filesystem::path path(std::string_view name) const { return folder_ / name; }

  /// Names in the folder, sorted.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }

  TempDir folder_;
};

inline std::size_t line_count(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

/// A failure as the manual promises it: the code, nothing on stdout, one line on stderr.
inline void expect_failure(const RunResult& result, int exit_code,
                           const std::vector<std::string>& mentions) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(line_count(result.err), 1U) << result.err;
  EXPECT_THAT(result.err, ::testing::StartsWith("error: "));
  for (const std::string& mention : mentions) {
    EXPECT_THAT(result.err, ::testing::HasSubstr(mention));
  }
}

}  // namespace trash_panda::testing
