#include "trash_panda/format/text_arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "trash_panda/base/units.h"

namespace trash_panda::format {

namespace {

constexpr std::size_t kPieceBytesMin = 4 * kKiB;
constexpr std::size_t kPieceBytesMax = 1 * kMiB;

}  // namespace

std::string_view TextArena::keep(std::string_view text) {
  if (pieces_.empty() || text.size() > piece_bytes_ - used_bytes_) {
    const std::size_t twice_bytes = pieces_.empty() ? 0 : 2 * piece_bytes_;
    reserve(std::max(text.size(), std::clamp(twice_bytes, kPieceBytesMin, kPieceBytesMax)));
  }
  char* copy = pieces_.back().get() + used_bytes_;
  std::ranges::copy(text, copy);
  used_bytes_ += text.size();
  return {copy, text.size()};
}

void TextArena::reserve(std::size_t bytes) {
  pieces_.push_back(std::make_unique_for_overwrite<char[]>(bytes));
  piece_bytes_ = bytes;
  used_bytes_ = 0;
}

void TextArena::take(TextArena other) {
  if (other.pieces_.empty()) {
    return;
  }
  std::ranges::move(other.pieces_, std::back_inserter(pieces_));
  piece_bytes_ = other.piece_bytes_;
  used_bytes_ = other.used_bytes_;
}

}  // namespace trash_panda::format
