#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/format/dtype.h"
#include "trash_panda/format/tensor_record.h"

#include "base/support/temp_dir.h"

namespace trash_panda::testing {

/// The bytes of `values`, as they lie in a checkpoint on this (little-endian) machine.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// Repeatable noise: equal seeds give equal bytes.
inline std::string random_bytes(std::size_t size_bytes, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::string bytes(size_bytes, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(engine());
  }
  return bytes;
}

/// Builds a safetensors file in memory, tensors in the order of the add() calls.
///
/// Independent of the code under test: it writes its own JSON. Names must need no escaping.
class SafetensorsBuilder {
 public:
  /// Adds a tensor with these bytes, whose count is not checked against dtype and shape.
  SafetensorsBuilder& add(const std::string& name, format::Dtype dtype, const format::Shape& shape,
                          std::string bytes) {
    const std::size_t begin = data_.size();
    data_ += bytes;
    entries_.push_back(fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                   name, format::dtype_name(dtype), fmt::join(shape, ","), begin,
                                   data_.size()));
    bytes_.insert_or_assign(name, std::move(bytes));
    return *this;
  }

  /// Adds a tensor of repeatable noise; whole bytes only.
  SafetensorsBuilder& add_random(const std::string& name, format::Dtype dtype,
                                 const format::Shape& shape) {
    std::uint64_t bits = format::dtype_bits(dtype);
    for (const std::uint64_t dimension : shape) {
      bits *= dimension;
    }
    return add(name, dtype, shape, random_bytes(bits / 8, ++seed_));
  }

  SafetensorsBuilder& metadata(const std::string& key, const std::string& value) {
    metadata_.insert_or_assign(key, value);
    return empty_metadata();
  }
  /// Writes `__metadata__` even if it has no entries.
  SafetensorsBuilder& empty_metadata() {
    has_metadata_ = true;
    return *this;
  }

  /// The whole file.
  [[nodiscard]] std::string file() const {
    std::vector<std::string> members;
    if (has_metadata_) {
      std::vector<std::string> pairs;
      for (const auto& [key, value] : metadata_) {
        pairs.push_back(fmt::format(R"("{}":"{}")", key, value));
      }
      members.push_back(fmt::format(R"("__metadata__":{{{}}})", fmt::join(pairs, ",")));
    }
    members.insert(members.end(), entries_.begin(), entries_.end());
    std::string header = fmt::format("{{{}}}", fmt::join(members, ","));
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return bytes_of(std::vector<std::uint64_t>{header.size()}) + header + data_;
  }

  void write(const std::filesystem::path& path) const { write_text(path, file()); }

  /// Bytes of each tensor, by name.
  [[nodiscard]] const std::map<std::string, std::string>& tensors() const { return bytes_; }

 private:
  std::vector<std::string> entries_;
  std::map<std::string, std::string> metadata_;
  bool has_metadata_ = false;
  std::map<std::string, std::string> bytes_;
  std::string data_;
  std::uint64_t seed_ = 0;
};

/// Writes a `model.safetensors.index.json` that maps each name to a file.
inline void write_index(const std::filesystem::path& path,
                        const std::map<std::string, std::string>& weight_map) {
  std::vector<std::string> pairs;
  for (const auto& [name, file] : weight_map) {
    pairs.push_back(fmt::format(R"("{}":"{}")", name, file));
  }
  write_text(path,
             fmt::format(R"({{"metadata":{{}},"weight_map":{{{}}}}})", fmt::join(pairs, ",")));
}

}  // namespace trash_panda::testing
