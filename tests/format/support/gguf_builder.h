#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint_builder.h"

namespace trash_panda::testing {

template <class T>
std::string le(T value) {
  return bytes_of(std::vector<T>{value});
}

/// A string as GGUF has it: length, then bytes.
inline std::string gguf_string(const std::string& text) {
  return le<std::uint64_t>(text.size()) + text;
}

/// Numbers that GGUF gives to types of values.
namespace gguf_value {
inline constexpr std::uint32_t kUint8 = 0;
inline constexpr std::uint32_t kUint16 = 2;
inline constexpr std::uint32_t kUint32 = 4;
inline constexpr std::uint32_t kInt32 = 5;
inline constexpr std::uint32_t kFloat32 = 6;
inline constexpr std::uint32_t kBool = 7;
inline constexpr std::uint32_t kString = 8;
inline constexpr std::uint32_t kArray = 9;
inline constexpr std::uint32_t kUint64 = 10;
inline constexpr std::uint32_t kFloat64 = 12;
}  // namespace gguf_value

/// Numbers that ggml gives to types of tensors, those that tests use.
namespace ggml {
inline constexpr std::uint32_t kF32 = 0;
inline constexpr std::uint32_t kF16 = 1;
inline constexpr std::uint32_t kQ4_0 = 2;
inline constexpr std::uint32_t kQ8_0 = 8;
inline constexpr std::uint32_t kQ4_K = 12;
inline constexpr std::uint32_t kBf16 = 30;
}  // namespace ggml

/// Builds a GGUF file in memory, independent of the code under test: data in the order of the
/// add() calls, each padded to the alignment but the last.
class GgufBuilder {
 public:
  /// A key with a value of any type, given as its bytes.
  GgufBuilder& key(const std::string& name, std::uint32_t type, const std::string& value) {
    pairs_.push_back(gguf_string(name) + le(type) + value);
    return *this;
  }
  GgufBuilder& text(const std::string& name, const std::string& value) {
    return key(name, gguf_value::kString, gguf_string(value));
  }
  GgufBuilder& number(const std::string& name, std::uint32_t value) {
    return key(name, gguf_value::kUint32, le(value));
  }
  /// Sets `general.alignment`, and pads by it.
  GgufBuilder& alignment(std::uint32_t bytes) {
    alignment_ = bytes;
    return number("general.alignment", bytes);
  }
  /// Pads by this without a word about it.
  GgufBuilder& silent_alignment(std::uint32_t bytes) {
    alignment_ = bytes;
    return *this;
  }
  GgufBuilder& version(std::uint32_t version) {
    version_ = version;
    return *this;
  }
  /// Writes these counts, whatever there is.
  GgufBuilder& counts(std::uint64_t tensors, std::uint64_t keys) {
    counts_ = {tensors, keys};
    return *this;
  }

  /// Adds a tensor with its data. @param shape  Row-major, as everywhere but in the file.
  GgufBuilder& add(const std::string& name, std::uint32_t type, const format::Shape& shape,
                   const std::string& bytes) {
    data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_);
    describe(name, type, shape, data_.size());
    data_ += bytes;
    return *this;
  }
  /// Adds a tensor of noise.
  GgufBuilder& add_random(const std::string& name, std::uint32_t type, const format::Shape& shape,
                          std::size_t size_bytes) {
    return add(name, type, shape, random_bytes(size_bytes, ++seed_));
  }
  /// Adds a tensor's description alone.
  GgufBuilder& describe(const std::string& name, std::uint32_t type, const format::Shape& shape,
                        std::uint64_t offset) {
    std::string dimensions;
    for (const std::uint64_t dimension : shape | std::views::reverse) {
      dimensions += le(dimension);
    }
    infos_.push_back(gguf_string(name) + le(static_cast<std::uint32_t>(shape.size())) + dimensions +
                     le(type) + le(offset));
    return *this;
  }
  /// More data after what was added.
  GgufBuilder& append(const std::string& bytes) {
    data_ += bytes;
    return *this;
  }

  /// The header, without the padding before the data.
  [[nodiscard]] std::string header() const {
    const auto [tensors, keys] = counts_.value_or(std::pair(infos_.size(), pairs_.size()));
    std::string text = "GGUF" + le(version_) + le<std::uint64_t>(tensors) + le<std::uint64_t>(keys);
    for (const std::vector<std::string>* part : {&pairs_, &infos_}) {
      for (const std::string& piece : *part) {
        text += piece;
      }
    }
    return text;
  }

  /// The whole file.
  [[nodiscard]] std::string file() const {
    std::string text = header();
    if (!data_.empty()) {
      text.resize((text.size() + alignment_ - 1) / alignment_ * alignment_);
    }
    return text + data_;
  }

  void write(const std::filesystem::path& path) const { write_text(path, file()); }

 private:
  std::uint32_t version_ = 3;
  std::uint64_t alignment_ = 32;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> counts_;
  std::vector<std::string> pairs_;
  std::vector<std::string> infos_;
  std::string data_;
  std::uint64_t seed_ = 0;
};

/// A small language model: embedding, blocks of Q4_K and norms, as llama.cpp names them.
inline GgufBuilder small_gguf(std::uint64_t block_count = 4) {
  GgufBuilder builder;
  builder.text("general.architecture", "llama")
      .text("general.name", "Small")
      .number("llama.block_count", static_cast<std::uint32_t>(block_count))
      .add_random("token_embd.weight", ggml::kQ8_0, {10, 256}, 10 * 8 * 34);
  for (std::uint64_t i = 0; i < block_count; ++i) {
    const std::string block = fmt::format("blk.{}.", i);
    builder.add_random(block + "attn_norm.weight", ggml::kF32, {256}, 256 * 4)
        .add_random(block + "attn_q.weight", ggml::kQ4_K, {4, 256}, 4 * 144)
        .add_random(block + "ffn_up.weight", ggml::kQ4_K, {8, 256}, 8 * 144);
  }
  builder.add_random("output_norm.weight", ggml::kF32, {256}, 256 * 4);
  return builder;
}

}  // namespace trash_panda::testing
