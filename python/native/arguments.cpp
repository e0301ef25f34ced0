#include "arguments.h"

#include <string>

#include "errors.h"

namespace trash_panda::python {
namespace {

[[noreturn]] void refuse(std::string_view what, std::string_view given, std::string_view allowed) {
  throw NativeError(Error(ErrorCode::kUsage, std::string(what) + " is \"" + std::string(given) +
                                                 "\", not one of " + std::string(allowed)));
}

}  // namespace

format::Dtype dtype_argument(std::string_view name) {
  if (const auto dtype = format::parse_dtype(name)) {
    return *dtype;
  }
  refuse("dtype", name, "safetensors' names, such as BF16");
}

format::Tier tier_argument(std::string_view name) {
  if (const auto tier = format::parse_tier(name)) {
    return *tier;
  }
  refuse("tier", name, "gpu, ram, disk");
}

runtime::VerifyMode verify_argument(std::string_view name) {
  if (name == "headers") {
    return runtime::VerifyMode::kHeaders;
  }
  if (name == "full") {
    return runtime::VerifyMode::kFull;
  }
  refuse("verify", name, "headers, full");
}

runtime::IoBackend io_argument(std::string_view name) {
  if (const auto backend = runtime::parse_io_backend(name)) {
    return *backend;
  }
  refuse("TRASH_PANDA_IO", name, "auto, io_uring, pread");
}

}  // namespace trash_panda::python
