#include "file_format.h"

#include <algorithm>
#include <vector>

#include "gguf_file.h"
#include "torch_file.h"

namespace trash_panda::format {

namespace {

using namespace std::string_view_literals;

/// One line a format. @see file_sniff.cpp for where the magic numbers are from
const std::vector<FileFormat>& file_formats() {
  static const std::vector<FileFormat> kFormats = {
      {.kind = FileKind::kGguf, .magic = "GGUF"sv, .ending = ".gguf"sv, .read = read_gguf_file},
      {.kind = FileKind::kTorch, .magic = "PK\x03\x04"sv, .read = read_torch_zip},
      {.kind = FileKind::kTorch, .magic = "\x80\x02"sv, .read = read_torch_legacy},
      {.kind = FileKind::kTorch, .magic = "\x80\x03"sv, .read = read_torch_legacy},
      {.kind = FileKind::kTorch, .magic = "\x80\x04"sv, .read = read_torch_legacy},
      {.kind = FileKind::kTorch, .magic = "\x80\x05"sv, .read = read_torch_legacy},
  };
  return kFormats;
}

}  // namespace

const FileFormat* find_file_format(const std::filesystem::path& path,
                                   std::span<const std::byte> head) {
  if (path.extension() == ".safetensors") {
    return nullptr;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(head.data()), head.size());
  const std::vector<FileFormat>& formats = file_formats();
  const auto found = std::ranges::find_if(formats, [&](const FileFormat& format) {
    return bytes.starts_with(format.magic) ||
           (!format.ending.empty() && path.extension() == format.ending);
  });
  return found == formats.end() ? nullptr : &*found;
}

}  // namespace trash_panda::format
