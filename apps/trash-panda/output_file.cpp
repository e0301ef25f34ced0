#include "output_file.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/base/units.h"

namespace trash_panda::cli {

namespace {

Result<void> write_and_rename(FileSystem& files, const std::filesystem::path& path,
                              const std::filesystem::path& staged, std::string_view text,
                              Overwrite overwrite) {
  TP_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                      files.create_file(staged, WriteMode::kBuffered));
  TP_RETURN_IF_ERROR(file->write_at(0, std::as_bytes(std::span(text))));
  TP_RETURN_IF_ERROR(file->sync());
  TP_RETURN_IF_ERROR(file->close());
  if (overwrite == Overwrite::kRefuse) {
    TP_RETURN_IF_ERROR(files.rename(staged, path));
  } else if (std::rename(staged.c_str(), path.c_str()) != 0) {
    return std::unexpected(Error::from_errno(
        errno, fmt::format("can't replace {}", printable(path)), ErrorCode::kOutput));
  }
  return files.sync_directory(folder_of(path));
}

}  // namespace

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

Result<void> check_output_folder(const std::filesystem::path& folder, std::string_view flag) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("{} is not a folder", printable(folder)))
            .with_hint(fmt::format("make it first, or choose another place with {}", flag)));
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return std::unexpected(Error::from_errno(errno,
                                             fmt::format("can't write to {}", printable(folder)),
                                             ErrorCode::kOutput)
                               .with_hint(fmt::format("choose another place with {}", flag)));
  }
  return {};
}

Result<void> check_output_file(const std::filesystem::path& path, Overwrite overwrite) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("{} is not a regular file", printable(path)))
            .with_hint("choose another name with -o"));
  }
  if (std::filesystem::exists(status) && overwrite == Overwrite::kRefuse) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("{} already exists", printable(path)))
            .with_hint("-f replaces it"));
  }
  if (!std::filesystem::is_directory(folder_of(path), error)) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("can't write {}: {} is not a folder", printable(path),
                                              printable(folder_of(path))))
            .with_hint("make it first, or choose another place with -o"));
  }
  return {};
}

Result<void> check_output_setting(const Setting& setting, Overwrite overwrite) {
  if (!setting.given()) {
    return {};
  }
  if (setting.text.empty()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("{}: an empty name", setting.source)));
  }
  return check_output_file(setting.text, overwrite);
}

Result<void> write_output_file(const std::filesystem::path& path, std::string_view text,
                               Overwrite overwrite) {
  TP_RETURN_IF_ERROR(check_output_file(path, overwrite));
  std::filesystem::path staged = path;
  staged.replace_filename(fmt::format(".{}.{}.tmp", path.filename().native(), ::getpid()));
  FileSystem& files = FileSystem::posix();
  Result<void> written = write_and_rename(files, path, staged, text, overwrite);
  if (!written) {
    // The first error is the one to tell; what can't be removed is a small hidden file.
    const Result<void> removed = files.remove_all(staged);
    static_cast<void>(removed);
    return std::unexpected(
        std::move(written).error().with_context(fmt::format("can't write {}", printable(path))));
  }
  return {};
}

Result<std::string> read_small_file(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  TP_ASSIGN_OR_RETURN(const File file, File::open(path));
  if (file.size_bytes() > limit_bytes) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("{} has {}, more than the {} that such a file may have", printable(path),
                          format_bytes(file.size_bytes()), format_bytes(limit_bytes))));
  }
  std::string text(file.size_bytes(), '\0');
  TP_RETURN_IF_ERROR(file.read_exact_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<std::string> read_small_input(const std::string& name, std::uint64_t limit_bytes) {
  if (name != "-") {
    return read_small_file(name, limit_bytes);
  }
  std::string text;
  std::array<char, 65536> piece{};
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return std::unexpected(Error::from_errno(errno, "can't read stdin"));
    }
    if (got == 0) {
      return text;
    }
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (text.size() > limit_bytes) {
      return std::unexpected(
          Error(ErrorCode::kCorrupt, fmt::format("stdin has more than the {} that are read of it",
                                                 format_bytes(limit_bytes))));
    }
  }
}

std::string_view input_name(std::string_view name) {
  return name == "-" ? "stdin" : name;
}

}  // namespace trash_panda::cli
