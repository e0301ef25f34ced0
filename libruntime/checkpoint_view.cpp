#include "checkpoint_view.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/weights.h"
#include "trash_panda/plan/block_groups.h"
#include "trash_panda/plan/pack_layout.h"
#include "trash_panda/runtime/checkpoint_manifest.h"

namespace trash_panda::runtime {

namespace {

using format::PackedExtent;
using format::PackedTensor;
using format::TensorRecord;

constexpr std::uint64_t kPageBytes = 4096;
/// Reading over a gap of this size takes a drive no longer than a request of its own.
constexpr std::uint64_t kGapBytesMax = 64 * kKiB;

Error needs_pack(std::string_view name, std::string_view why) {
  return Error(
             ErrorCode::kUnsupported,
             fmt::format("\"{}\" can't be streamed from its checkpoint: {}", printable(name), why))
      .with_reason("needs_pack")
      .with_hint("repack the checkpoint and stream the pack");
}

std::uint64_t page_down(std::uint64_t offset_bytes) {
  return offset_bytes / kPageBytes * kPageBytes;
}

/// A run of a file, in whole pages but for the file's end.
struct Run {
  std::size_t checkpoint_file;
  std::uint64_t begin_bytes;
  std::uint64_t end_bytes;
  std::uint64_t target_offset_bytes = 0;
};

class ExtentViewer {
 public:
  ExtentViewer(const format::Checkpoint& checkpoint, PackedExtent& extent)
      : checkpoint_(checkpoint), extent_(extent) {
    for (const PackedTensor& tensor : extent.tensors) {
      if (tensor.scale) {
        scale_sources_.emplace(tensor.name + "_scale", tensor.scale->source_name);
      }
    }
  }

  /// Where the extent's bytes are; gives its tensors their places in memory.
  Result<std::vector<ExtentPiece>> view() {
    for (const PackedTensor& tensor : extent_.tensors) {
      TP_ASSIGN_OR_RETURN(const TensorRecord* record, find(tensor));
      records_.push_back(record);
    }
    make_runs();
    std::vector<ExtentPiece> pieces;
    std::uint64_t target_bytes = 0;
    for (Run& run : runs_) {
      run.target_offset_bytes = target_bytes;
      add_pieces(run, pieces);
      TP_ASSIGN_OR_RETURN(const std::uint64_t taken_bytes,
                          round_up(run.end_bytes - run.begin_bytes, kPageBytes));
      target_bytes += taken_bytes;
    }
    place_tensors();
    // At least a page, so that an extent of empty tensors has a place too.
    extent_.raw_bytes = std::max(target_bytes, kPageBytes);
    extent_.stored_bytes = extent_.raw_bytes;
    extent_.shard_index = pieces.empty() ? 0 : static_cast<std::uint32_t>(pieces[0].file_index);
    extent_.offset_bytes = pieces.empty() ? 0 : pieces[0].offset_bytes;
    extent_.checksum.clear();
    return pieces;
  }

 private:
  /// The tensor of the checkpoint whose bytes a tensor of the pack has.
  [[nodiscard]] Result<const TensorRecord*> find(const PackedTensor& tensor) const {
    const format::PackedSource& source = tensor.source;
    const std::string& name = tensor.is_scale       ? scale_sources_.at(tensor.name)
                              : source.name.empty() ? tensor.name
                                                    : source.name;
    const std::optional<std::size_t> index = checkpoint_.find(name);
    TP_ASSERT(index.has_value());
    const TensorRecord& record = checkpoint_.tensors()[*index];
    if (checkpoint_.files()[record.file_index].kind != format::FileKind::kSafetensors) {
      return std::unexpected(needs_pack(name, "its file is no safetensors file"));
    }
    if (!record.strides.empty()) {
      return std::unexpected(needs_pack(name, "its elements do not lie in a row"));
    }
    if (source.is_normalized || record.size_bytes != tensor.size_bytes) {
      return std::unexpected(needs_pack(name, "it is a scale of a form that packs normalize"));
    }
    return &record;
  }

  /// Joins what lies together in a file.
  void make_runs() {
    std::vector<const TensorRecord*> order = records_;
    std::erase_if(order, [](const TensorRecord* record) { return record->size_bytes == 0; });
    std::ranges::sort(order, {}, [](const TensorRecord* record) {
      return std::pair(record->file_index, record->offset_bytes);
    });
    for (const TensorRecord* record : order) {
      const std::uint64_t file_bytes = checkpoint_.files()[record->file_index].size_bytes;
      const std::uint64_t end_bytes = record->offset_bytes + record->size_bytes;
      const std::uint64_t page_end_bytes =
          std::min(page_down(end_bytes + kPageBytes - 1), file_bytes);
      if (!runs_.empty() && runs_.back().checkpoint_file == record->file_index &&
          record->offset_bytes <= runs_.back().end_bytes + kGapBytesMax) {
        runs_.back().end_bytes = std::max(runs_.back().end_bytes, page_end_bytes);
      } else {
        runs_.push_back({.checkpoint_file = record->file_index,
                         .begin_bytes = page_down(record->offset_bytes),
                         .end_bytes = page_end_bytes});
      }
    }
  }

  /// A run's whole pages are read directly, what is left at the end of its file buffered.
  static void add_pieces(const Run& run, std::vector<ExtentPiece>& pieces) {
    const std::uint64_t whole_end_bytes = page_down(run.end_bytes);
    if (whole_end_bytes > run.begin_bytes) {
      pieces.push_back({.file_index = 2 * run.checkpoint_file,
                        .offset_bytes = run.begin_bytes,
                        .size_bytes = whole_end_bytes - run.begin_bytes,
                        .target_offset_bytes = run.target_offset_bytes});
    }
    if (run.end_bytes > whole_end_bytes) {
      const std::uint64_t at_bytes = std::max(whole_end_bytes, run.begin_bytes);
      pieces.push_back(
          {.file_index = 2 * run.checkpoint_file + 1,
           .offset_bytes = at_bytes,
           .size_bytes = run.end_bytes - at_bytes,
           .target_offset_bytes = run.target_offset_bytes + (at_bytes - run.begin_bytes)});
    }
  }

  void place_tensors() {
    for (std::size_t at = 0; at < records_.size(); ++at) {
      const TensorRecord& record = *records_[at];
      const auto run = std::ranges::find_if(runs_, [&](const Run& candidate) {
        return candidate.checkpoint_file == record.file_index &&
               candidate.begin_bytes <= record.offset_bytes &&
               record.offset_bytes < candidate.end_bytes;
      });
      PackedTensor& tensor = extent_.tensors[at];
      tensor.offset_bytes =
          run == runs_.end() || record.size_bytes == 0
              ? 0
              : run->target_offset_bytes + (record.offset_bytes - run->begin_bytes);
      tensor.stored_offset_bytes = tensor.offset_bytes;
    }
    std::ranges::stable_sort(extent_.tensors, {}, &PackedTensor::offset_bytes);
  }

  const format::Checkpoint& checkpoint_;
  PackedExtent& extent_;
  std::map<std::string, std::string, std::less<>> scale_sources_;
  std::vector<const TensorRecord*> records_;  ///< Of the extent's tensors, as long as they are not
                                              ///< sorted.
  std::vector<Run> runs_;
};

}  // namespace

Result<format::Manifest> checkpoint_manifest(const std::filesystem::path& checkpoint,
                                             const plan::Plan& plan) {
  TP_ASSIGN_OR_RETURN(CheckpointView view, view_checkpoint(checkpoint, plan));
  return std::move(view.manifest);
}

Result<CheckpointView> view_checkpoint(const std::filesystem::path& where, const plan::Plan& plan) {
  TP_ASSIGN_OR_RETURN(const format::Checkpoint checkpoint, format::Checkpoint::open(where));
  TP_ASSIGN_OR_RETURN(const format::WeightTable weights, format::find_weights(checkpoint));
  TP_ASSIGN_OR_RETURN(const plan::BlockMap blocks,
                      plan::find_blocks(checkpoint.tensors(), {.groups = plan.groups()}));
  TP_ASSIGN_OR_RETURN(const format::PackLayout layout,
                      plan::make_pack_layout(plan, checkpoint, weights, blocks));
  format::PackOptions options;
  options.page_bytes = kPageBytes;
  CheckpointView view;
  TP_ASSIGN_OR_RETURN(view.manifest, format::lay_out_pack(checkpoint, weights, layout, options));
  for (PackedExtent& extent : view.manifest.extents) {
    TP_ASSIGN_OR_RETURN(std::vector<ExtentPiece> pieces, ExtentViewer(checkpoint, extent).view());
    view.pieces.push_back(std::move(pieces));
  }
  view.manifest.shards.clear();
  for (const format::CheckpointFile& file : checkpoint.files()) {
    for (int mode = 0; mode < 2; ++mode) {
      view.files.push_back(file.path);
      view.manifest.shards.push_back({.name = file.name,
                                      .size_bytes = file.size_bytes,
                                      .header_bytes = file.data_offset_bytes,
                                      .header_checksum = {}});
    }
  }
  return view;
}

}  // namespace trash_panda::runtime
