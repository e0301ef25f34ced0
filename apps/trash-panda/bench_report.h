#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trash_panda/runtime/bench.h"

namespace trash_panda::cli {

/// What `bench` measures, in its order: the words of --what.
inline constexpr std::array<std::string_view, 6> kBenchWords = {"disk",   "h2d",    "ram",
                                                                "expand", "decode", "stream"};

/// One run of `bench`.
struct BenchDocument {
  std::uint64_t round_count = 0;
  std::string path;  ///< Of the drive, as given.
  std::string pack;  ///< As given; empty: none.
  runtime::BenchReport report;
  std::optional<runtime::StreamBench> stream;
};

/// For people: a table of what was measured, and a line for each thing that was left out.
[[nodiscard]] std::string bench_text(const BenchDocument& document);

/// The same as a JSON document. @see schemas/bench.schema.json
[[nodiscard]] std::string bench_json(const BenchDocument& document);

}  // namespace trash_panda::cli
