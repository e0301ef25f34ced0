#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "memory_ledger.h"

namespace trash_panda::runtime {

/// What streaming spends time on.
enum class SpanKind : std::uint8_t {
  kRead,     ///< An extent on its way from the drive.
  kDecode,   ///< Making tensors some of which are coded: beside the block before, or in the caller.
  kCopy,     ///< An extent on its way to a GPU, until the host has seen it arrive.
  kExpand,   ///< Checking, and making tensors that are not coded.
  kCompute,  ///< The caller, while it holds the block; with a GPU the host runs ahead of it.
  kWait,     ///< The caller, for one of the others.
};

/// "read", "decode", "copy", "expand", "compute" or "wait".
[[nodiscard]] std::string_view span_kind_name(SpanKind kind);

using RunClock = std::chrono::steady_clock;

struct RunSpan {
  SpanKind kind = SpanKind::kRead;
  SpanKind cause = SpanKind::kRead;  ///< Of a wait: what it was for.
  std::uint64_t pass = 0;            ///< Of the use; from 1. A read may begin in the pass before.
  std::size_t block = 0;             ///< Index.
  RunClock::time_point begin = {};
  RunClock::time_point end = {};
  std::uint64_t size_bytes = 0;  ///< Read, copied, made, computed with, or waited for.
};

struct RunPass {
  std::uint64_t pass = 0;
  RunClock::time_point begin = {};  ///< Its first block was asked for.
  RunClock::time_point end = {};    ///< Its last block was given back.
  std::uint64_t read_bytes_ram = 0;
  std::uint64_t read_bytes_disk = 0;
};

/// What weights take.
struct RunMemory {
  RunClock::time_point at = {};
  std::array<std::uint64_t, kMemoryUseCount> bytes_by_use = {};
  std::uint64_t device_bytes = 0;
};

/// A block that streamed stays in RAM from its next read on, or a block gave its memory back.
struct RunHome {
  RunClock::time_point at = {};
  std::size_t block = 0;
  bool stays = false;
};

}  // namespace trash_panda::runtime
