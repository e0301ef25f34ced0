#include "fuzz_target.h"

#include <algorithm>

namespace trash_panda::fuzz {

namespace {

/// Longest message that is still a line for people. Names are cut at 300 bytes, two may be in it.
constexpr std::size_t kMessageBytesMax = 4096;

bool is_control(char c) {
  return (c >= 0 && c < ' ') || c == '\x7f';
}

std::size_t& largest_buffers() {
  static std::size_t largest = kBufferBytes;
  return largest;
}

}  // namespace

std::map<std::string_view, Target>& targets() {
  static std::map<std::string_view, Target> all;
  return all;
}

std::size_t buffer_bytes_max() {
  return largest_buffers();
}

bool add_target(std::string_view name, Target target, std::size_t buffer_bytes) {
  largest_buffers() = std::max(largest_buffers(), buffer_bytes);
  return targets().emplace(name, target).second;
}

void check_message(const Error& error) {
  TP_ASSERT(!error.message().empty());
  const std::string line = error.to_string();
  TP_ASSERT(std::ranges::none_of(line, is_control));
  TP_ASSERT(line.size() <= kMessageBytesMax);
}

void check_refusal(const Error& error) {
  TP_ASSERT(error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kUnsupported);
  check_message(error);
}

std::uint64_t largest_number(std::string_view text) {
  std::uint64_t largest = 0;
  std::uint64_t number = 0;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit || __builtin_mul_overflow(number, std::uint64_t{10}, &number) ||
        __builtin_add_overflow(number, static_cast<std::uint64_t>(c - '0'), &number)) {
      number = 0;
    }
    largest = std::max(largest, number);
  }
  return largest;
}

}  // namespace trash_panda::fuzz
