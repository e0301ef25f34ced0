#include "trash_panda/format/weights.h"

#include "trash_panda/base/file.h"

#include "gguf_weights.h"
#include "weight_finder.h"

namespace trash_panda::format {

std::string_view granularity_name(Granularity granularity) {
  switch (granularity) {
    case Granularity::kTensor:
      return "tensor";
    case Granularity::kRow:
      return "row";
    case Granularity::kColumn:
      return "column";
    case Granularity::kBlock:
      return "block";
  }
  TP_ASSERT(!"a granularity without a name");
  return {};
}

Result<WeightTable> find_weights(const Checkpoint& checkpoint) {
  if (checkpoint.is_gguf()) {
    return list_gguf_weights(checkpoint);
  }
  auto table = WeightFinder(checkpoint).find();
  if (!table) {
    return std::unexpected(std::move(table).error().with_context(printable(checkpoint.path())));
  }
  return table;
}

}  // namespace trash_panda::format
