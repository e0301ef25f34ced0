#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint_builder.h"
#include "zip_builder.h"

namespace trash_panda::testing {

/// Opcodes of a pickle of protocol 2, one function a value.
/// @see Python's pickletools
namespace pickle {

inline std::string text(const std::string& value) {
  return "X" + little_endian(value.size(), 4) + value;
}
inline std::string integer(std::int64_t value) {
  return std::string("\x8a\x08") + little_endian(static_cast<std::uint64_t>(value), 8);
}
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string tuple(const std::string& values) {
  return "(" + values + "t";
}
inline std::string numbers(const std::vector<std::uint64_t>& values) {
  std::string text;
  for (const std::uint64_t value : values) {
    text += integer(static_cast<std::int64_t>(value));
  }
  return tuple(text);
}
inline std::string dict(const std::string& items) {
  return "}(" + items + "u";
}
inline std::string ordered_dict() {
  return global("collections", "OrderedDict") + ")R";
}
inline std::string whole(const std::string& value) {
  return "\x80\x02" + value + ".";
}
/// A storage by its persistent id.
inline std::string storage(const std::string& type, const std::string& key, std::uint64_t count) {
  return tuple(text("storage") + global("torch", type) + text(key) + text("cpu") +
               integer(static_cast<std::int64_t>(count))) +
         "Q";
}

}  // namespace pickle

/// A tensor as torch.save() describes it.
struct PickledView {
  std::string type = "FloatStorage";
  std::string key = "0";
  std::uint64_t count = 0;  ///< Elements of the storage.
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> strides;

  [[nodiscard]] std::string pickled() const {
    return pickle::global("torch._utils", "_rebuild_tensor_v2") +
           pickle::tuple(pickle::storage(type, key, count) +
                         pickle::integer(static_cast<std::int64_t>(offset)) +
                         pickle::numbers(shape) + pickle::numbers(strides) + "\x89" +
                         pickle::ordered_dict()) +
           "R";
  }
};

/// Builds the files that torch.save() writes, from pickles of the test's own making.
class TorchBuilder {
 public:
  /// The value that the pickle holds, by its opcodes.
  TorchBuilder& root(const std::string& value) {
    pickle_ = pickle::whole(value);
    return *this;
  }
  TorchBuilder& storage(const std::string& key, const std::string& bytes) {
    storages_.emplace_back(key, bytes);
    return *this;
  }

  [[nodiscard]] ZipBuilder zip(ZipSizes sizes = ZipSizes::kPlain) const {
    ZipBuilder zip(sizes);
    zip.add("archive/data.pkl", pickle_);
    zip.add("archive/byteorder", "little");
    for (const auto& [key, bytes] : storages_) {
      zip.add({.name = "archive/data/" + key, .data = bytes, .padding_bytes = 37});
    }
    zip.add("archive/version", "3\n");
    return zip;
  }

  /// The format before zip: `width` is that of the storages' elements, in bytes.
  [[nodiscard]] std::string legacy(std::size_t width) const {
    using namespace pickle;
    std::string keys;
    std::string data;
    for (const auto& [key, bytes] : storages_) {
      keys += text(key);
      data += little_endian(bytes.size() / width, 8) + bytes;
    }
    return whole(std::string("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")) +
           whole(integer(1001)) + whole(dict(text("little_endian") + "\x88")) + pickle_ +
           whole("](" + keys + "e") + data;
  }

  void write(const std::filesystem::path& path) const { write_text(path, zip().file()); }

 private:
  std::string pickle_;
  std::vector<std::pair<std::string, std::string>> storages_;
};

}  // namespace trash_panda::testing
