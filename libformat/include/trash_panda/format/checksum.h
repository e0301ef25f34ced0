#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace trash_panda::format {

/// xxh3-128 over a stream of bytes. @see https://xxhash.com (XXH3, 128 bits, seed 0)
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void update(std::span<const std::byte> bytes);
  /// 32 lower-case hex digits, most significant first, as `xxh128sum` prints them.
  [[nodiscard]] std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Checksum::hex() of one run of bytes.
[[nodiscard]] std::string checksum_hex(std::span<const std::byte> bytes);

}  // namespace trash_panda::format
