// A checkpoint from its file to its weights and blocks: the text of a config.json, a zero byte,
// and a file of any format. Its metadata are what scales are paired by (torchao, ComfyUI).

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/safetensors_header.h"
#include "trash_panda/format/weights.h"
#include "trash_panda/plan/block_groups.h"

#include "fuzz_target.h"

namespace trash_panda::fuzz {

namespace {

namespace fs = std::filesystem;
using format::Checkpoint;
using format::TensorRecord;
using format::WeightTable;

/// Files are made longer than what is written, up to this: a hole costs nothing.
constexpr std::uint64_t kHoleBytesMax = std::uint64_t{1} << 40U;
/// Scales of more elements are not read: it is the reading that is looked at, not the amount.
constexpr std::uint64_t kReadElementsMax = 4096;

/// A folder of this process, gone when it ends.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "trash-panda-fuzz-XXXXXX").string();
    TP_ASSERT(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] fs::path write(const char* name, std::string_view bytes) const {
    const fs::path path = path_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

 private:
  fs::path path_;
};

/// Writes a file, and a hole where a safetensors header says that there are more data.
fs::path write_model(const Folder& folder, std::string_view bytes) {
  fs::path path = folder.write("model.bin", bytes);
  const auto head = std::as_bytes(std::span(bytes.substr(0, 512)));
  const Result<std::uint64_t> header_bytes = format::read_header_size(head, bytes.size());
  if (header_bytes) {
    const std::uint64_t begin_bytes = format::kLengthFieldBytes + *header_bytes;
    const std::uint64_t data_bytes =
        largest_number(bytes.substr(format::kLengthFieldBytes, *header_bytes));
    if (data_bytes < kHoleBytesMax && begin_bytes + data_bytes > bytes.size()) {
      std::error_code ignored;
      fs::resize_file(path, begin_bytes + data_bytes, ignored);
    }
  }
  return path;
}

void check_tensors_of(const Checkpoint& checkpoint) {
  TP_ASSERT(checkpoint.files().size() == 1);
  const std::uint64_t file_size_bytes = checkpoint.files()[0].size_bytes;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    const TensorRecord& tensor = checkpoint.tensors()[i];
    TP_ASSERT(checkpoint.find(tensor.name) == i);
    TP_ASSERT(tensor.size_bytes == 0 || tensor.offset_bytes < file_size_bytes);
    std::vector<std::byte> some(std::min<std::uint64_t>(tensor.size_bytes, 64));
    TP_ASSERT(checkpoint.read_tensor_part(i, tensor.size_bytes - some.size(), some).has_value());
  }
}

void check_scale(const Checkpoint& checkpoint, const format::WeightScale& scale) {
  std::uint64_t count = 1;
  for (const std::uint64_t dimension : scale.shape) {
    TP_ASSERT(!__builtin_mul_overflow(count, dimension, &count));
  }
  TP_ASSERT(format::scale_size_bytes(scale) == format::dtype_bits(scale.dtype) / 8 * count);
  if (count <= kReadElementsMax) {
    const auto values = format::read_scale(checkpoint, scale);
    TP_ASSERT(values && values->size() == count);
  }
}

/// Every tensor is in exactly one place: nothing is dropped.
void check_weights(const Checkpoint& checkpoint, const WeightTable& table) {
  std::vector<int> uses(checkpoint.tensors().size());
  std::set<std::string> names;
  for (const format::Weight& weight : table.weights) {
    ++uses.at(weight.tensor_index);
    TP_ASSERT(names.emplace(weight.name).second);
    if (weight.scale) {
      ++uses.at(weight.scale->tensor_index);
      check_scale(checkpoint, *weight.scale);
    }
  }
  for (const std::size_t index : table.ignored) {
    ++uses.at(index);
  }
  for (const std::size_t index : table.tied) {
    ++uses.at(index);
  }
  for (const auto& [alias, target] : table.aliases) {
    TP_ASSERT(names.contains(target) && !names.contains(alias));
  }
  TP_ASSERT(std::ranges::all_of(uses, [](int count) { return count == 1; }));
}

void check_blocks(std::span<const TensorRecord> tensors) {
  const Result<plan::BlockMap> map = plan::find_blocks(tensors);
  TP_ASSERT(map.has_value());
  std::vector<std::size_t> placed = map->outside;
  for (const plan::BlockGroup& group : map->groups) {
    for (const plan::Block& block : group.blocks) {
      TP_ASSERT(!block.tensors.empty());
      placed.insert(placed.end(), block.tensors.begin(), block.tensors.end());
    }
  }
  std::ranges::sort(placed);
  TP_ASSERT(placed.size() == tensors.size());
  for (std::size_t i = 0; i < placed.size(); ++i) {
    TP_ASSERT(placed[i] == i);
  }
}

bool fuzz_checkpoint(std::string_view input) {
  static const Folder folder;
  const std::size_t zero = std::min(input.find('\0'), input.size());
  static_cast<void>(folder.write("config.json", input.substr(0, zero)));
  const fs::path path = write_model(folder, input.substr(std::min(zero + 1, input.size())));
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) {
    check_message(checkpoint.error());
    return false;
  }
  check_tensors_of(*checkpoint);
  check_blocks(checkpoint->tensors());
  const Result<WeightTable> weights = format::find_weights(*checkpoint);
  if (weights) {
    check_weights(*checkpoint, *weights);
  } else {
    check_refusal(weights.error());
  }
  return weights.has_value();
}

[[maybe_unused]] const bool kCheckpointAdded = add_target("checkpoint", fuzz_checkpoint);

}  // namespace

}  // namespace trash_panda::fuzz
