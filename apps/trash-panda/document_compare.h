#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json_text.h"

namespace trash_panda::cli {

/// One value that two documents do not share.
struct Difference {
  std::string path;  ///< "budget.ram_bytes", "block.layers.3.tier".
  Json first;        ///< Null where the document has none.
  Json second;
  /// The same without the item's name, "block.tier", where it is one of a list, and the item's
  /// place in it. Empty: no list.
  std::string field;
  std::size_t index = 0;
};

struct Comparison {
  std::vector<Difference> differences;  ///< In the order of the first document, then the second.
};

/// Compares two JSON objects value by value. Blocks go by their name, items of other lists by their
/// place; lists of plain values are one value.
[[nodiscard]] Comparison compare_documents(const Json& first, const Json& second);

/// A table with a line for each difference, equal ones of several items on one.
[[nodiscard]] std::string comparison_text(const Comparison& comparison);

/// What was compared, for the document.
struct ComparedInputs {
  std::string_view kind;  ///< "plan", "hardware" or "run log".
  std::string first;
  std::string second;
};

/// @see schemas/diff.schema.json
[[nodiscard]] std::string comparison_json(const Comparison& comparison,
                                          const ComparedInputs& inputs);

}  // namespace trash_panda::cli
