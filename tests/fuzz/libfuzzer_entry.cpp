// Joins one target with libFuzzer, and holds its memory against the size of its input.

#include <cstddef>
#include <cstdint>

#include <sanitizer/allocator_interface.h>

#include "fuzz_target.h"

namespace trash_panda::fuzz {

namespace {

// Parsers keep memory in proportion to what they read: a number in a file, such as a count of
// tensors, makes none of them reserve more. The factor is what hostile inputs reach that are all
// references: two bytes of a pickle for a value, four for one more name of a tensor of 64
// dimensions.
constexpr std::size_t kHeldBytesPerInputByte = 512;

/// Bytes that the current input has made us hold. Targets run on this thread alone.
struct Held {
  bool is_counting = false;
  std::size_t bytes = 0;
  std::size_t bytes_max = 0;
};
Held held;

void count_allocation(const volatile void* /*memory*/, std::size_t size_bytes) {
  if (held.is_counting) {
    held.bytes += size_bytes;
    held.bytes_max = held.bytes > held.bytes_max ? held.bytes : held.bytes_max;
  }
}

void count_release(const volatile void* memory) {
  if (held.is_counting && memory != nullptr) {
    const std::size_t size_bytes = __sanitizer_get_allocated_size(
        const_cast<const void*>(memory));  // NOLINT(*-const-cast): the hook's signature.
    // What was allocated before this input is not counted when it goes.
    held.bytes -= size_bytes < held.bytes ? size_bytes : held.bytes;
  }
}

void run_target(std::string_view input) {
  static const bool installed =
      __sanitizer_install_malloc_and_free_hooks(count_allocation, count_release) != 0;
  TP_ASSERT(installed && targets().size() == 1);
  held = {.is_counting = true};
  targets().begin()->second(input);
  held.is_counting = false;
  TP_ASSERT(held.bytes_max <= buffer_bytes_max() + kHeldBytesPerInputByte * input.size());
}

}  // namespace

}  // namespace trash_panda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // libFuzzer hands out a null pointer for the empty input; nothing else does.
  const char* text = size == 0 ? "" : reinterpret_cast<const char*>(data);
  trash_panda::fuzz::run_target({text, size});
  return 0;
}
