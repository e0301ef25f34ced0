#include "staged_text.h"

#include <memory>
#include <span>

namespace trash_panda::format {

Result<void> write_staged_text(FileSystem& file_system, const std::filesystem::path& path,
                               std::string_view text) {
  TP_RETURN_IF_ERROR(file_system.remove_all(path));
  TP_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                      file_system.create_file(path, WriteMode::kBuffered));
  TP_RETURN_IF_ERROR(file->write_at(0, std::as_bytes(std::span(text))));
  TP_RETURN_IF_ERROR(file->sync());
  return file->close();
}

}  // namespace trash_panda::format
