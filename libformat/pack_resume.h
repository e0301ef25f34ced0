#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/format/manifest.h"

#include "extent_source.h"
#include "source_watch.h"
#include "staging_directory.h"

namespace trash_panda::format {

/// Indexes of a manifest's extents in the order in which they are written: shard after shard.
[[nodiscard]] std::vector<std::size_t> write_order(const Manifest& manifest);

/// What of a pack an earlier run finished.
struct ResumePoint {
  std::vector<PackedExtent> extents;  ///< The first ones in write_order(); empty: nothing.
  std::uint64_t journal_bytes = 0;    ///< Of the journal that speak of them.
  std::string obstacle;               ///< Why there is nothing, for messages.
  bool is_stale = false;              ///< Because it is of another pack.
};

/// Looks at what an earlier run left: its journal, and whether the last extent that it lists is
/// there with its checksum. Where it is not, the one before counts as the last one, and so on. That
/// extent is then made of the source again, which has to give the same bytes.
///
/// @param key       Of this run; a journal of another one is an obstacle.
/// @param manifest  As lay_out_pack() made it.
/// @param source    Of the same manifest.
/// @retval kInterrupted  `stop` was set.
/// @return Also the errors of reading the source.
Result<ResumePoint> find_resume_point(const StagingDirectory& staging, const std::string& key,
                                      const Manifest& manifest, const ExtentSource& source,
                                      StopFlag stop);

/// What a journal's record of conversions is known by.
[[nodiscard]] std::string conversion_record_key(std::string_view chosen_by,
                                                const SourceWatch& watch);

}  // namespace trash_panda::format
