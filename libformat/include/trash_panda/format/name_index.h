#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace trash_panda::format {

/// Finds things by name, and names that are there twice, in a list that stays where it is.
///
/// 12 to 16 bytes a name, built in linear time, without a copy of a name or a pointer to one, so
/// that it moves along with the list. The list is passed to each call as `name_at(position)`. Names
/// made to collide cost no more than a sort.
class NameIndex {
 public:
  NameIndex() = default;

  /// Indexes the names `name_at(0)` to `name_at(count - 1)`; fewer than 2^32.
  template <class NameAt>
  NameIndex(std::size_t count, NameAt name_at) {
    // A counting sort by the top bits of the hash, one bucket a name, then each bucket by itself.
    const auto bucket_bits = static_cast<unsigned>(std::bit_width(count));
    shift_ = 32 - std::max(bucket_bits, 1U);
    bucket_ends_.assign((std::size_t{1} << bucket_bits) + 1, 0);
    std::vector<std::uint32_t> hashes(count);
    for (std::size_t i = 0; i < count; ++i) {
      hashes[i] = hash_of(name_at(i));
      ++bucket_ends_[bucket_of(hashes[i]) + 1];
    }
    for (std::size_t i = 1; i < bucket_ends_.size(); ++i) {
      bucket_ends_[i] += bucket_ends_[i - 1];
    }
    // Each bucket's begin moves to its end as its names are placed.
    slots_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      slots_[bucket_ends_[bucket_of(hashes[i])]++] = {hashes[i], static_cast<std::uint32_t>(i)};
    }
    for (std::size_t bucket = 0; bucket + 1 < bucket_ends_.size(); ++bucket) {
      const std::span<Slot> names = slots_of(bucket);
      if (names.size() > 1) {
        sort_bucket(names, name_at);
      }
    }
  }

  /// Position of a name, the first one of equals; nothing when it is not there.
  template <class NameAt>
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name, NameAt name_at) const {
    if (slots_.empty()) {
      return std::nullopt;
    }
    const std::uint32_t hash = hash_of(name);
    const std::span<const Slot> names = slots_of(bucket_of(hash));
    const auto place = std::ranges::partition_point(names, [&](const Slot& slot) {
      return slot.hash != hash ? slot.hash < hash : view(name_at(slot.position)) < name;
    });
    const bool is_found =
        place != names.end() && place->hash == hash && view(name_at(place->position)) == name;
    return is_found ? std::optional<std::size_t>(place->position) : std::nullopt;
  }

  /// Two positions of one name; nothing when all names differ.
  template <class NameAt>
  [[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> find_twice(
      NameAt name_at) const {
    const auto twice = std::ranges::adjacent_find(slots_, [&](const Slot& a, const Slot& b) {
      return a.hash == b.hash && view(name_at(a.position)) == view(name_at(b.position));
    });
    if (twice == slots_.end()) {
      return std::nullopt;
    }
    return std::pair<std::size_t, std::size_t>(twice->position, std::next(twice)->position);
  }

  /// Follows names that move to another place: `new_positions[i]` is where the one at i goes. All
  /// of them differ.
  void move_names(std::span<const std::uint32_t> new_positions) {
    for (Slot& slot : slots_) {
      slot.position = new_positions[slot.position];
    }
  }

 private:
  struct Slot {
    std::uint32_t hash;
    std::uint32_t position;
  };

  static std::string_view view(std::string_view name) { return name; }
  static std::uint32_t hash_of(std::string_view name);
  [[nodiscard]] std::size_t bucket_of(std::uint32_t hash) const { return hash >> shift_; }

  /// A bucket's names, once all are placed: from the end of the bucket before it to its own.
  [[nodiscard]] std::span<const Slot> slots_of(std::size_t bucket) const {
    const std::size_t begin = bucket == 0 ? 0 : bucket_ends_[bucket - 1];
    return std::span(slots_).subspan(begin, bucket_ends_[bucket] - begin);
  }
  [[nodiscard]] std::span<Slot> slots_of(std::size_t bucket) {
    const std::size_t begin = bucket == 0 ? 0 : bucket_ends_[bucket - 1];
    return std::span(slots_).subspan(begin, bucket_ends_[bucket] - begin);
  }

  /// By name where hashes agree, so that equal names are neighbours, the first one in front.
  template <class NameAt>
  static void sort_bucket(std::span<Slot> names, NameAt name_at) {
    std::ranges::sort(names, [&](const Slot& a, const Slot& b) {
      if (a.hash != b.hash) {
        return a.hash < b.hash;
      }
      const int order = view(name_at(a.position)).compare(view(name_at(b.position)));
      return order != 0 ? order < 0 : a.position < b.position;
    });
  }

  unsigned shift_ = 31;
  std::vector<std::uint32_t> bucket_ends_;
  std::vector<Slot> slots_;  ///< By bucket, then by hash, name and position.
};

}  // namespace trash_panda::format
