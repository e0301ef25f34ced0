#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/checksum.h"

#include "file_contents.h"

namespace trash_panda::format {

/// Reads the header of a file and checks it.
///
/// @param fingerprint  Is given what decides the layout: the header's bytes.
using ContentsReader = Result<FileContents> (*)(const File& file, Checksum& fingerprint);

/// A format beside safetensors whose files are read.
struct FileFormat {
  FileKind kind;
  std::string_view magic;        ///< What its files begin with.
  std::string_view ending = {};  ///< A file of this name is read as one, whatever it begins with.
  ContentsReader read;
};

/// The format of a file by its first bytes or its name; null for safetensors files, for those that
/// claim by their name to be one, and for what no reader is there.
///
/// A file named .safetensors that begins like another format is broken or mislabelled: who trusts
/// the name should be told, not served.
[[nodiscard]] const FileFormat* find_file_format(const std::filesystem::path& path,
                                                 std::span<const std::byte> head);

}  // namespace trash_panda::format
