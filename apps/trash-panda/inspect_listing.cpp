#include "inspect_listing.h"

#include <fnmatch.h>

namespace trash_panda::cli {

bool TensorListing::matches(std::string_view name) const {
  return ::fnmatch(match->c_str(), (prefix + std::string(name)).c_str(), 0) == 0;
}

}  // namespace trash_panda::cli
