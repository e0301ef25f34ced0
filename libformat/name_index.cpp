#include "trash_panda/format/name_index.h"

#include <xxhash.h>

namespace trash_panda::format {

std::uint32_t NameIndex::hash_of(std::string_view name) {
  return static_cast<std::uint32_t>(XXH3_64bits(name.data(), name.size()) >> 32U);
}

}  // namespace trash_panda::format
