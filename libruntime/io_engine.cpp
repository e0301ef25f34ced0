#include "trash_panda/runtime/io_engine.h"

#include <fmt/format.h>

#include "io_given_up.h"
#include "uring_engine.h"

namespace trash_panda::runtime {

Result<IoBackend> parse_io_backend(std::string_view text) {
  if (text == "auto") {
    return IoBackend::kAuto;
  }
  if (text == "io_uring") {
    return IoBackend::kUring;
  }
  if (text == "pread") {
    return IoBackend::kPread;
  }
  return std::unexpected(
      Error(ErrorCode::kUsage, fmt::format("there is no I/O engine \"{}\"", printable(text)))
          .with_hint("engines are auto, io_uring and pread"));
}

Result<std::unique_ptr<IoEngine>> make_io_engine(const IoOptions& options) {
  if (options.backend != IoBackend::kPread) {
    Result<std::unique_ptr<IoEngine>> engine = make_uring_engine(options);
    const bool is_refused = !engine && engine.error().code() == ErrorCode::kDevice;
    if (!is_refused || options.backend == IoBackend::kUring) {
      return engine;
    }
    options.log(LogLevel::kWarning, fmt::format("{}: using pread; {}", engine.error().message(),
                                                engine.error().hint()));
  }
  return make_pread_engine(options.depth);
}

Error read_given_up(const ReadRequest& request) {
  return {
      ErrorCode::kInterrupted,
      fmt::format("reading {} bytes at {} of {} was given up: the engine is closing",
                  request.target.size(), request.offset_bytes, printable(request.file->path()))};
}

}  // namespace trash_panda::runtime
