#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace trash_panda::format {

/// Keeps many short texts, one behind the other in a few large pieces of memory: a hundred thousand
/// names cost neither an allocation each nor the time to free them.
class TextArena {
 public:
  /// Copies a text. @return Valid as long as the arena, or as the one that this is moved to.
  std::string_view keep(std::string_view text);
  /// Makes room for as many bytes at once, for a caller that knows how many will come.
  void reserve(std::size_t bytes);
  /// Takes over all that another one keeps.
  void take(TextArena other);

 private:
  std::vector<std::unique_ptr<char[]>> pieces_;
  std::size_t piece_bytes_ = 0;  ///< Of the last piece.
  std::size_t used_bytes_ = 0;   ///< Of the last piece.
};

}  // namespace trash_panda::format
