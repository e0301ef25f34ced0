#include "file_sniff.h"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "pickle_globals.h"

namespace trash_panda::format {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view kNotSafetensors = "not_safetensors";
constexpr std::string_view kRenamePickle =
    "if it is a torch checkpoint, name it .pt: its tensors are then read, executing nothing";
constexpr std::string_view kDownloadAgain = "download the file itself again";

struct Magic {
  std::string_view bytes;
  ForeignFormat format;
};

// Sources: PKWARE APPNOTE 4.3.7; gguf specification; Python pickle protocols 2 to 5 (PROTO opcode);
// Git LFS specification; HDF5 3.0 II.A; RFC 1952; RFC 8878 3.1.1; xz 2.1.1.1; numpy.lib.format.
constexpr std::array kMagics = {
    Magic{"version https://git-lfs"sv,
          {"a Git LFS pointer, not the file that it stands for", kNotSafetensors,
           "fetch the file: git lfs pull"}},
    Magic{"# xet version"sv,
          {"a Xet pointer, not the file that it stands for", kNotSafetensors, kDownloadAgain}},
    Magic{"PK\x03\x04"sv,
          {"a zip archive, in which torch.save() keeps a pickle", "pickle", kRenamePickle}},
    Magic{"\x80\x02"sv, {"a Python pickle", "pickle", kRenamePickle}},
    Magic{"\x80\x03"sv, {"a Python pickle", "pickle", kRenamePickle}},
    Magic{"\x80\x04"sv, {"a Python pickle", "pickle", kRenamePickle}},
    Magic{"\x80\x05"sv, {"a Python pickle", "pickle", kRenamePickle}},
    Magic{"GGUF"sv,
          {"a GGUF file", "gguf", "get the model's safetensors files, which GGUF was made from"}},
    Magic{
        "\x89HDF\r\n"sv,
        {"an HDF5 file (Keras, TensorFlow)", kNotSafetensors, "get the model's safetensors files"}},
    Magic{"\x93NUMPY"sv,
          {"a NumPy array file", kNotSafetensors, "convert it: safetensors.numpy.save_file()"}},
    Magic{"\x1f\x8b"sv, {"gzip-compressed", kNotSafetensors, "decompress it first"}},
    Magic{"\x28\xb5\x2f\xfd"sv, {"zstd-compressed", kNotSafetensors, "decompress it first"}},
    Magic{"\xfd"
          "7zXZ"sv,
          {"xz-compressed", kNotSafetensors, "decompress it first"}},
};

constexpr ForeignFormat kHtml = {"an HTML or XML page, such as a login or error page",
                                 kNotSafetensors, kDownloadAgain};
constexpr ForeignFormat kJson = {"JSON text without the 8 bytes of length in front",
                                 kNotSafetensors, kDownloadAgain};
constexpr ForeignFormat kText = {"plain text, such as an error message of a download",
                                 kNotSafetensors, kDownloadAgain};
constexpr ForeignFormat kTar = {"a tar archive, as old versions of torch.save() wrote them",
                                "pickle", kConvertPickleHint};

/// Where a tar header has its magic. @see POSIX ustar
constexpr std::size_t kTarMagicOffset = 257;

/// Text is told by this many first bytes; a length field alone never looks like it.
constexpr std::size_t kTextBytesMin = 12;

bool is_text(char c) {
  return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

std::optional<ForeignFormat> sniff_foreign_format(std::span<const std::byte> head) {
  std::string_view bytes(reinterpret_cast<const char*>(head.data()), head.size());
  for (const Magic& magic : kMagics) {
    if (bytes.starts_with(magic.bytes)) {
      return magic.format;
    }
  }
  if (bytes.size() > kTarMagicOffset && bytes.substr(kTarMagicOffset).starts_with("ustar")) {
    return kTar;
  }
  std::string_view text = bytes;
  if (text.starts_with("\xef\xbb\xbf")) {
    text.remove_prefix(3);
  }
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (text.size() > 1 && text[0] == '<' && (text[1] == '!' || text[1] == '?' || is_text(text[1]))) {
    return kHtml;
  }
  const std::string_view start = bytes.substr(0, 64);
  if (start.size() >= kTextBytesMin && std::ranges::all_of(start, is_text)) {
    return text.starts_with('{') ? kJson : kText;
  }
  return std::nullopt;
}

Error foreign_format_error(const ForeignFormat& format) {
  return Error(ErrorCode::kUnsupported, fmt::format("not a safetensors file but {}", format.name))
      .with_reason(kNotSafetensors)
      .with_hint(std::string(format.hint));
}

}  // namespace trash_panda::format
