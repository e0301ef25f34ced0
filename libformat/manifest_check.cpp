#include "manifest_check.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/safetensors_header.h"

#include "coded_extent.h"
#include "scale_fit.h"
#include "source_tensors.h"
#include "tensor_size.h"

namespace trash_panda::format {

namespace {

/// Where every stored tensor is, to find scales and the targets of aliases.
struct Located {
  const PackedTensor* tensor;
  const PackedExtent* extent;
};
using TensorsByName = std::unordered_map<std::string_view, Located>;

template <class... Args>
std::unexpected<Error> corrupt(std::string_view reason, fmt::format_string<Args...> format,
                               Args&&... args) {
  return std::unexpected(
      Error(ErrorCode::kCorrupt, fmt::format(format, std::forward<Args>(args)...))
          .with_reason(reason));
}

Result<void> check_shard(const Manifest& manifest, const PackedShard& shard) {
  const std::string name = printable(shard.name);
  constexpr std::string_view kSuffix = ".safetensors";
  // A name is joined to the pack's folder: it must not lead out of it.
  if (!shard.name.ends_with(kSuffix) || shard.name.size() == kSuffix.size() ||
      shard.name.find('/') != std::string::npos || shard.name.find('\\') != std::string::npos ||
      shard.name.find('\0') != std::string::npos) {
    return corrupt("unsafe_path", "shard name \"{}\" is not a plain *.safetensors file name", name);
  }
  if (shard.header_bytes == 0 || shard.header_bytes % manifest.page_bytes != 0 ||
      shard.size_bytes % manifest.page_bytes != 0) {
    return corrupt("alignment", "{}: header of {} and size of {} bytes are not whole pages of {}",
                   name, shard.header_bytes, shard.size_bytes, manifest.page_bytes);
  }
  if (shard.header_bytes - kLengthFieldBytes > kHeaderBytesMax) {
    return corrupt("header_too_large", "{}: a header of {} bytes is over the limit of {}", name,
                   shard.header_bytes - kLengthFieldBytes, kHeaderBytesMax);
  }
  if (shard.size_bytes < shard.header_bytes) {
    return corrupt("size_mismatch", "{}: size of {} bytes is less than its header's {}", name,
                   shard.size_bytes, shard.header_bytes);
  }
  return {};
}

Result<void> check_shards(const Manifest& manifest) {
  std::unordered_set<std::string_view> names;
  for (const PackedShard& shard : manifest.shards) {
    TP_RETURN_IF_ERROR(check_shard(manifest, shard));
    if (!names.insert(shard.name).second) {
      return corrupt("duplicate", "two shards are named \"{}\"", printable(shard.name));
    }
  }
  return {};
}

Result<void> check_extent_place(const Manifest& manifest, const PackedExtent& extent) {
  const std::string name = printable(extent.name);
  if (extent.shard_index >= manifest.shards.size()) {
    return corrupt("offsets", "extent \"{}\" names shard {} of {}", name, extent.shard_index,
                   manifest.shards.size());
  }
  const PackedShard& shard = manifest.shards[extent.shard_index];
  if (extent.offset_bytes % manifest.page_bytes != 0 ||
      extent.stored_bytes % manifest.page_bytes != 0) {
    return corrupt("alignment", "extent \"{}\" of {} bytes at {} is not made of whole pages of {}",
                   name, extent.stored_bytes, extent.offset_bytes, manifest.page_bytes);
  }
  if (extent.stored_bytes == 0 || extent.offset_bytes < shard.header_bytes ||
      extent.offset_bytes > shard.size_bytes ||
      extent.stored_bytes > shard.size_bytes - extent.offset_bytes) {
    return corrupt("offsets",
                   "extent \"{}\" of {} bytes at {} is not inside the data [{}, {}) of {}", name,
                   extent.stored_bytes, extent.offset_bytes, shard.header_bytes, shard.size_bytes,
                   printable(shard.name));
  }
  if (extent.codec == kCodecRaw && extent.raw_bytes != extent.stored_bytes) {
    return corrupt("size_mismatch", "extent \"{}\" is raw, but {} bytes stored and {} decoded",
                   name, extent.stored_bytes, extent.raw_bytes);
  }
  return {};
}

/// Every byte of a shard behind its header lies in exactly one extent: so each has a checksum.
Result<void> check_cover(const Manifest& manifest) {
  std::vector<std::vector<const PackedExtent*>> by_shard(manifest.shards.size());
  for (const PackedExtent& extent : manifest.extents) {
    by_shard[extent.shard_index].push_back(&extent);
  }
  for (std::size_t i = 0; i < by_shard.size(); ++i) {
    const PackedShard& shard = manifest.shards[i];
    std::ranges::sort(by_shard[i], {}, &PackedExtent::offset_bytes);
    std::uint64_t end_bytes = shard.header_bytes;
    for (const PackedExtent* extent : by_shard[i]) {
      if (extent->offset_bytes != end_bytes) {
        return corrupt(
            "offsets", "{}: extent \"{}\" starts at {}, but what is before it ends at {}",
            printable(shard.name), printable(extent->name), extent->offset_bytes, end_bytes);
      }
      end_bytes = extent->offset_bytes + extent->stored_bytes;
    }
    if (end_bytes != shard.size_bytes) {
      return corrupt("trailing", "{}: its extents end at {}, but it has {} bytes",
                     printable(shard.name), end_bytes, shard.size_bytes);
    }
  }
  return {};
}

Result<void> check_tensor(const PackedExtent& extent, const PackedTensor& tensor,
                          std::uint64_t previous_end_bytes) {
  // Put into words only when needed: there may be a hundred thousand.
  const auto name = [&] { return printable(tensor.name); };
  if (tensor.name.starts_with(kPadPrefix) || tensor.name.starts_with(kCodedPrefix) ||
      tensor.name == "__metadata__") {
    return corrupt("schema", "tensor name \"{}\" is reserved", name());
  }
  const std::optional<std::uint64_t> size_bytes = tensor_size_bytes(tensor.dtype, tensor.shape);
  if (size_bytes != tensor.size_bytes) {
    return corrupt("size_mismatch", "tensor \"{}\" says {} bytes, but {} of shape {} takes {}",
                   name(), tensor.size_bytes, dtype_name(tensor.dtype), to_string(tensor.shape),
                   size_bytes ? fmt::to_string(*size_bytes) : "no whole number that fits 64 bits");
  }
  if (tensor.offset_bytes % kTensorAlignment != 0) {
    return corrupt("alignment", "tensor \"{}\" is at {}, which is no multiple of {}", name(),
                   tensor.offset_bytes, kTensorAlignment);
  }
  if (tensor.offset_bytes < previous_end_bytes || tensor.offset_bytes > extent.raw_bytes ||
      tensor.size_bytes > extent.raw_bytes - tensor.offset_bytes) {
    return corrupt("offsets",
                   "tensor \"{}\" of {} bytes at {} is not inside [{}, {}) of extent \"{}\"",
                   name(), tensor.size_bytes, tensor.offset_bytes, previous_end_bytes,
                   extent.raw_bytes, printable(extent.name));
  }
  return {};
}

Result<void> check_extents(const Manifest& manifest, TensorsByName& tensors) {
  std::unordered_set<std::string_view> names;
  std::size_t tensor_count = 0;
  for (const PackedExtent& extent : manifest.extents) {
    tensor_count += extent.tensors.size();
  }
  tensors.reserve(tensor_count);
  bool blocks_began = false;
  for (const PackedExtent& extent : manifest.extents) {
    TP_RETURN_IF_ERROR(check_extent_place(manifest, extent));
    if (!names.insert(extent.name).second) {
      return corrupt("duplicate", "two extents are named \"{}\"", printable(extent.name));
    }
    if (extent.tier == Tier::kBase && blocks_began) {
      return corrupt("schema", "base extent \"{}\" comes after a block", printable(extent.name));
    }
    blocks_began = blocks_began || extent.tier != Tier::kBase;
    if (extent.tensors.empty()) {
      return corrupt("schema", "extent \"{}\" has no tensors", printable(extent.name));
    }
    std::uint64_t end_bytes = 0;
    for (const PackedTensor& tensor : extent.tensors) {
      TP_RETURN_IF_ERROR(check_tensor(extent, tensor, end_bytes));
      end_bytes = tensor.offset_bytes + tensor.size_bytes;
      if (!tensors.emplace(tensor.name, Located{&tensor, &extent}).second) {
        return corrupt("duplicate", "two tensors are named \"{}\"", printable(tensor.name));
      }
    }
    TP_RETURN_IF_ERROR(check_stored_places(extent));
  }
  return {};
}

Result<void> check_scale_of(const Located& weight, const PackedScale& how,
                            const TensorsByName& tensors) {
  const std::string name = weight.tensor->name + "_scale";
  const auto scale = tensors.find(name);
  if (scale == tensors.end() || scale->second.extent != weight.extent ||
      !scale->second.tensor->is_scale) {
    return corrupt("scale_missing", "extent \"{}\" lacks \"{}\", the scale of \"{}\"",
                   printable(weight.extent->name), printable(name), printable(weight.tensor->name));
  }
  const PackedTensor& found = *scale->second.tensor;
  if (!scale_dtype_fits(found.dtype, how.granularity, how.block_shape)) {
    return corrupt("scale_dtype", "scale \"{}\" is {}; per {}{} it has to be {}", printable(name),
                   dtype_name(found.dtype), granularity_name(how.granularity),
                   how.block_shape.empty() ? "" : " of " + to_string(how.block_shape),
                   is_mx_block(how.granularity, how.block_shape) ? "F32 or F8_E8M0" : "F32");
  }
  if (!scale_shape_fits(weight.tensor->shape, found.shape, how.granularity, how.block_shape)) {
    return corrupt("scale_shape",
                   "scale \"{}\" of shape {} does not fit \"{}\" of shape {} per {}{}",
                   printable(name), to_string(found.shape), printable(weight.tensor->name),
                   to_string(weight.tensor->shape), granularity_name(how.granularity),
                   how.block_shape.empty() ? "" : " of " + to_string(how.block_shape));
  }
  return {};
}

Result<void> check_scales(const Manifest& manifest, const TensorsByName& tensors) {
  std::size_t scaled_count = 0;
  std::size_t scale_count = 0;
  for (const PackedExtent& extent : manifest.extents) {
    for (const PackedTensor& tensor : extent.tensors) {
      scale_count += tensor.is_scale ? 1 : 0;
      if (!tensor.scale) {
        continue;
      }
      ++scaled_count;
      if (tensor.is_scale) {
        return corrupt("schema", "\"{}\" is a scale and has one", printable(tensor.name));
      }
      TP_RETURN_IF_ERROR(check_scale_of({&tensor, &extent}, *tensor.scale, tensors));
    }
  }
  // Names are unique, so each scaled weight found a scale of its own.
  if (scaled_count != scale_count) {
    return corrupt("schema", "{} tensors are scales, but {} have one", scale_count, scaled_count);
  }
  return {};
}

Result<void> check_aliases(const Manifest& manifest, const TensorsByName& tensors) {
  for (const auto& [alias, target] : manifest.aliases) {
    if (alias == "__metadata__") {
      return corrupt("schema", "alias \"{}\" is reserved", alias);
    }
    if (tensors.contains(alias)) {
      return corrupt("duplicate", "\"{}\" is an alias and a stored tensor", printable(alias));
    }
    if (!tensors.contains(target)) {
      return corrupt("missing_tensor", "\"{}\" is an alias of \"{}\", which is not stored",
                     printable(alias), printable(target));
    }
  }
  return {};
}

Result<void> check_all(const Manifest& manifest) {
  if (!is_page_size(manifest.page_bytes)) {
    return corrupt("alignment", "page_bytes is {}, not a power of two from {} to {}",
                   manifest.page_bytes, kPageBytesMin, kPageBytesMax);
  }
  TensorsByName tensors;
  TP_RETURN_IF_ERROR(check_shards(manifest));
  TP_RETURN_IF_ERROR(check_extents(manifest, tensors));
  TP_RETURN_IF_ERROR(check_cover(manifest));
  TP_RETURN_IF_ERROR(check_scales(manifest, tensors));
  TP_RETURN_IF_ERROR(check_aliases(manifest, tensors));
  return check_sources(manifest);
}

}  // namespace

bool is_page_size(std::uint64_t page_bytes) {
  return std::has_single_bit(page_bytes) && page_bytes >= kPageBytesMin &&
         page_bytes <= kPageBytesMax;
}

Result<void> check_manifest(const Manifest& manifest, std::string_view where) {
  Result<void> checked = check_all(manifest);
  if (!checked) {
    return std::unexpected(std::move(checked).error().with_context(where));
  }
  return {};
}

}  // namespace trash_panda::format
