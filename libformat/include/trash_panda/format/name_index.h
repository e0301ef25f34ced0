#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace trash_panda::format {

/// Finds things by name, and names that are there twice, in a list that stays where it is.
///
/// A sorted list of hashes and positions: 16 bytes a name, built by one sort, no copy of a name
/// and no pointer to one, so that it moves along with the list. The list is passed to each call as
/// `name_at(position)`.
class NameIndex {
 public:
  NameIndex() = default;

  /// Indexes the names `name_at(0)` to `name_at(count - 1)`.
  template <class NameAt>
  NameIndex(std::size_t count, NameAt name_at) {
    slots_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      slots_.push_back({hash_of(name_at(i)), i});
    }
    // By name where hashes agree: equal names are neighbours, and names made to collide cost no
    // more than a sort. By position in the end, so that the first one of equals is known.
    std::ranges::sort(slots_, [&](const Slot& a, const Slot& b) {
      if (a.hash != b.hash) {
        return a.hash < b.hash;
      }
      const int order = std::string_view(name_at(a.position)).compare(name_at(b.position));
      return order != 0 ? order < 0 : a.position < b.position;
    });
  }

  /// Position of a name, the first one of equals; nothing when it is not there.
  template <class NameAt>
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name, NameAt name_at) const {
    const std::uint64_t hash = hash_of(name);
    const auto is_before = [&](const Slot& slot) {
      return slot.hash != hash ? slot.hash < hash : std::string_view(name_at(slot.position)) < name;
    };
    const auto place = std::ranges::partition_point(slots_, is_before);
    if (place == slots_.end() || place->hash != hash || name_at(place->position) != name) {
      return std::nullopt;
    }
    return place->position;
  }

  /// Two positions of one name; nothing when all names differ.
  template <class NameAt>
  [[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> find_twice(
      NameAt name_at) const {
    const auto twice = std::ranges::adjacent_find(slots_, [&](const Slot& a, const Slot& b) {
      return a.hash == b.hash && name_at(a.position) == name_at(b.position);
    });
    if (twice == slots_.end()) {
      return std::nullopt;
    }
    return std::pair(twice->position, std::next(twice)->position);
  }

 private:
  struct Slot {
    std::uint64_t hash;
    std::size_t position;
  };

  static std::uint64_t hash_of(std::string_view name) {
    return std::hash<std::string_view>()(name);
  }

  std::vector<Slot> slots_;
};

}  // namespace trash_panda::format
