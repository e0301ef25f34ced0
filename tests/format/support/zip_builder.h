#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trash_panda::testing {

/// A number as a record of `width` bytes has it.
inline std::string little_endian(std::uint64_t number, std::size_t width) {
  std::string bytes;
  for (std::size_t i = 0; i < width; ++i) {
    bytes += static_cast<char>(number);
    number >>= 8;
  }
  return bytes;
}

enum class ZipSizes { kPlain, kIn64Bits };

/// Writes zip archives, sound and broken ones, independently of the code under test.
class ZipBuilder {
 public:
  struct Entry {
    std::string name;
    std::string data;
    std::uint16_t method = 0;        ///< 8 is "deflated"; the data stay what they are.
    std::uint16_t flags = 0x808;     ///< As torch writes them: UTF-8, sizes behind the data.
    std::size_t padding_bytes = 0;   ///< Length of the extra field before the data.
    std::uint64_t size_added = 0;    ///< Makes the directory's size a lie.
    std::uint64_t offset_bytes = 0;  ///< Set by file(): of its header.
  };

  explicit ZipBuilder(ZipSizes sizes = ZipSizes::kPlain) : sizes_(sizes) {}

  ZipBuilder& add(const std::string& name, const std::string& data) {
    return add(Entry{.name = name, .data = data});
  }
  ZipBuilder& add(Entry entry) {
    entries_.push_back(std::move(entry));
    return *this;
  }
  /// For the tests that break something.
  std::vector<Entry>& entries() { return entries_; }

  [[nodiscard]] std::string file() {
    std::string file;
    for (Entry& entry : entries_) {
      entry.offset_bytes = file.size();
      file += local_header(entry) + entry.data;
    }
    const std::uint64_t directory_offset = file.size();
    std::string directory;
    for (const Entry& entry : entries_) {
      directory += central_header(entry);
    }
    file += directory;
    const bool is_wide = sizes_ == ZipSizes::kIn64Bits;
    if (is_wide) {
      const std::uint64_t end_offset = file.size();
      file += "PK\x06\x06" + little_endian(44, 8) + little_endian(45, 2) + little_endian(45, 2) +
              little_endian(0, 8) + little_endian(entries_.size(), 8) +
              little_endian(entries_.size(), 8) + little_endian(directory.size(), 8) +
              little_endian(directory_offset, 8);
      file +=
          "PK\x06\x07" + little_endian(0, 4) + little_endian(end_offset, 8) + little_endian(1, 4);
    }
    const std::uint64_t count = is_wide ? 0xffff : entries_.size();
    return file + "PK\x05\x06" + little_endian(0, 4) + little_endian(count, 2) +
           little_endian(count, 2) + little_endian(is_wide ? 0xffffffff : directory.size(), 4) +
           little_endian(is_wide ? 0xffffffff : directory_offset, 4) + little_endian(0, 2);
  }

 private:
  static std::string local_header(const Entry& entry) {
    std::string extra;
    if (entry.padding_bytes > 0) {
      extra = "FB" + little_endian(entry.padding_bytes - 4, 2);
      extra.resize(entry.padding_bytes, 'Z');
    }
    return "PK\x03\x04" + little_endian(20, 2) + little_endian(entry.flags, 2) +
           little_endian(entry.method, 2) + little_endian(0, 4) + little_endian(0, 12) +
           little_endian(entry.name.size(), 2) + little_endian(extra.size(), 2) + entry.name +
           extra;
  }

  [[nodiscard]] std::string central_header(const Entry& entry) const {
    const bool is_wide = sizes_ == ZipSizes::kIn64Bits;
    const std::uint64_t size = entry.data.size() + entry.size_added;
    std::string extra;
    if (is_wide) {
      extra = little_endian(1, 2) + little_endian(24, 2) + little_endian(size, 8) +
              little_endian(size, 8) + little_endian(entry.offset_bytes, 8);
    }
    return "PK\x01\x02" + little_endian(45, 2) + little_endian(45, 2) +
           little_endian(entry.flags, 2) + little_endian(entry.method, 2) + little_endian(0, 8) +
           little_endian(is_wide ? 0xffffffff : size, 4) +
           little_endian(is_wide ? 0xffffffff : size, 4) + little_endian(entry.name.size(), 2) +
           little_endian(extra.size(), 2) + little_endian(0, 2) + little_endian(0, 2) +
           little_endian(0, 2) + little_endian(0, 4) +
           little_endian(is_wide ? 0xffffffff : entry.offset_bytes, 4) + entry.name + extra;
  }

  ZipSizes sizes_;
  std::vector<Entry> entries_;
};

}  // namespace trash_panda::testing
