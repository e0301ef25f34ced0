#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trash_panda/format/dtype.h"

namespace trash_panda::format {

enum class PickleKind : std::uint8_t {
  kOther,    ///< None, floats, byte strings, integers of more than 64 bits.
  kBool,     ///< `payload` is 0 or 1.
  kInteger,  ///< `payload` has the bits of a signed number.
  kString,   ///< `size` bytes of the pickle from `payload`.
  kTuple,    ///< `size` values of PickleGraph::items from `payload`.
  kList,     ///< PickleGraph::containers[payload].
  kDict,     ///< The same: keys and values in turns, in the order of their setting.
  kGlobal,   ///< A name of the whitelist, by its number.
  kStorage,  ///< PickleGraph::storages[payload].
  kTensor,   ///< PickleGraph::tensors[payload].
};

/// A value that a pickle builds: small, copied freely, what is large is elsewhere.
struct PickleValue {
  PickleKind kind = PickleKind::kOther;
  std::uint32_t size = 0;
  std::uint64_t payload = 0;
};

/// Bytes that lie outside the pickle, as a persistent id names them.
struct PickledStorage {
  std::string_view key;
  std::optional<Dtype> dtype;   ///< Nothing for an untyped one.
  std::uint64_t element_count;  ///< Of `dtype`; bytes of an untyped storage.
};

/// The arguments of a tensor's making, not yet checked against its storage.
struct PickledTensor {
  std::uint32_t storage_index;
  std::optional<Dtype> dtype;  ///< Where it is not the storage's.
  std::int64_t storage_offset;
  PickleValue shape;    ///< A tuple or list of anything.
  PickleValue strides;  ///< The same.
};

/// All that one pickle builds. Strings refer to the pickle's bytes.
///
/// Values may contain each other, in circles too: who walks them keeps count.
struct PickleGraph {
  std::span<const std::byte> bytes;
  PickleValue root;
  std::uint64_t end_bytes = 0;  ///< Of the pickle, within `bytes`.
  std::vector<PickleValue> items;
  std::vector<std::vector<PickleValue>> containers;
  std::vector<PickledStorage> storages;
  std::vector<PickledTensor> tensors;

  [[nodiscard]] std::string_view string(const PickleValue& value) const {
    return {reinterpret_cast<const char*>(bytes.data()) + value.payload, value.size};
  }
  /// The values of a tuple, list or dict; none of anything else.
  [[nodiscard]] std::span<const PickleValue> values(const PickleValue& value) const {
    switch (value.kind) {
      case PickleKind::kTuple:
        return std::span(items).subspan(value.payload, value.size);
      case PickleKind::kList:
      case PickleKind::kDict:
        return containers[value.payload];
      default:
        return {};
    }
  }
};

}  // namespace trash_panda::format
