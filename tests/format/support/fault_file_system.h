#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trash_panda/base/file_system.h"

#include "base/support/temp_dir.h"

namespace trash_panda::testing {

/// What a power cut takes away, at worst, of what was not synced.
enum class Loss {
  kNothing,       ///< Everything had reached the drive.
  kData,          ///< Names survive, data that were not synced don't: files are as last synced.
  kDataToZeros,   ///< Names and lengths survive, such data read as zeros.
  kSomeData,      ///< Some of such data survive and some don't, in no order; lengths do.
  kDataAndNames,  ///< Names that were made or changed without a sync of their folder go too.
};

/// A file system that works on the real one, fails when told to, and knows what was synced.
///
/// Calls are counted from 0, those of its files included; exists() can't fail and is not counted.
/// Removals are durable at once: what comes back of a staging folder is harmless by design.
class FaultFileSystem final : public FileSystem {
 public:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  /// Call `call` fails with this errno; it alone.
  void fail_call(std::uint64_t call, int errno_value) {
    failing_call_ = call;
    errno_value_ = errno_value;
  }
  /// Call `call` and all later ones fail and do nothing: the power is gone.
  void cut_power_at(std::uint64_t call) { last_call_ = call; }
  /// What the drive says that it has left.
  void set_free_bytes(std::uint64_t bytes) { free_bytes_ = bytes; }
  /// Calls so far.
  [[nodiscard]] std::uint64_t call_count() const { return call_count_; }

  /// Does to the drive what a power cut would have done, then forgets.
  void lose(Loss loss) {
    if (loss == Loss::kNothing) {
      return;
    }
    for (const auto& [path, synced] : synced_) {
      if (std::filesystem::exists(path)) {
        write_text(path, survivor(read_text(path), synced, loss));
      }
    }
    if (loss == Loss::kDataAndNames) {
      while (!unsynced_names_.empty()) {
        undo(unsynced_names_.back());
        unsynced_names_.pop_back();
      }
    }
  }

  Result<std::unique_ptr<WritableFile>> create_file(const std::filesystem::path& path,
                                                    WriteMode mode) override {
    TP_RETURN_IF_ERROR(begin_call("create", path));
    TP_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, posix().create_file(path, mode));
    synced_[path] = {};
    unsynced_names_.push_back({.folder = path.parent_path(), .made = path, .old = {}});
    return std::make_unique<FaultFile>(*this, std::move(file), path);
  }

  /// What another run left in a file counts as synced.
  Result<std::unique_ptr<WritableFile>> open_file(const std::filesystem::path& path,
                                                  std::uint64_t kept_bytes,
                                                  WriteMode mode) override {
    TP_RETURN_IF_ERROR(begin_call("open", path));
    if (!synced_.contains(path)) {
      synced_[path] = read_text(path);
    }
    TP_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                        posix().open_file(path, kept_bytes, mode));
    return std::make_unique<FaultFile>(*this, std::move(file), path);
  }

  Result<void> create_directory(const std::filesystem::path& path) override {
    TP_RETURN_IF_ERROR(begin_call("create the folder", path));
    TP_RETURN_IF_ERROR(posix().create_directory(path));
    unsynced_names_.push_back({.folder = path.parent_path(), .made = path, .old = {}});
    return {};
  }

  Result<void> link(const std::filesystem::path& file, const std::filesystem::path& name) override {
    TP_RETURN_IF_ERROR(begin_call("link", name));
    TP_RETURN_IF_ERROR(posix().link(file, name));
    unsynced_names_.push_back({.folder = name.parent_path(), .made = name, .old = {}});
    return {};
  }

  Result<void> link_symbolically(const std::filesystem::path& file,
                                 const std::filesystem::path& name) override {
    TP_RETURN_IF_ERROR(begin_call("link", name));
    TP_RETURN_IF_ERROR(posix().link_symbolically(file, name));
    unsynced_names_.push_back({.folder = name.parent_path(), .made = name, .old = {}});
    return {};
  }

  Result<void> rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    TP_RETURN_IF_ERROR(begin_call("rename", from));
    TP_RETURN_IF_ERROR(posix().rename(from, to));
    follow_rename(from, to);
    unsynced_names_.push_back({.folder = to.parent_path(), .made = to, .old = from});
    return {};
  }

  Result<std::unique_ptr<DirectoryLock>> lock_directory(
      const std::filesystem::path& path) override {
    TP_RETURN_IF_ERROR(begin_call("lock", path));
    return posix().lock_directory(path);
  }

  Result<std::vector<std::filesystem::path>> list_directory(
      const std::filesystem::path& path) override {
    TP_RETURN_IF_ERROR(begin_call("list", path));
    return posix().list_directory(path);
  }

  Result<void> sync_directory(const std::filesystem::path& directory) override {
    TP_RETURN_IF_ERROR(begin_call("sync the folder", directory));
    std::erase_if(unsynced_names_, [&](const Name& name) { return name.folder == directory; });
    return {};
  }

  Result<void> remove_all(const std::filesystem::path& path) override {
    TP_RETURN_IF_ERROR(begin_call("remove", path));
    TP_RETURN_IF_ERROR(posix().remove_all(path));
    synced_.erase(path);
    std::erase_if(unsynced_names_, [&](const Name& name) { return name.made == path; });
    return {};
  }

  bool exists(const std::filesystem::path& path) override { return posix().exists(path); }

  Result<std::uint64_t> free_bytes(const std::filesystem::path& path) override {
    TP_RETURN_IF_ERROR(begin_call("ask for the free space of", path));
    return free_bytes_ ? *free_bytes_ : posix().free_bytes(path);
  }

 private:
  /// What may survive or not on its own: less than a drive's sector, so that any file is cut up.
  static constexpr std::size_t kSectorBytes = 64;

  /// A name in a folder that was made or, with `old`, changed by a rename.
  struct Name {
    std::filesystem::path folder;
    std::filesystem::path made;
    std::filesystem::path old;
  };

  class FaultFile final : public WritableFile {
   public:
    FaultFile(FaultFileSystem& owner, std::unique_ptr<WritableFile> file,
              std::filesystem::path path)
        : owner_(owner), file_(std::move(file)), path_(std::move(path)) {}

    Result<void> write_at(std::uint64_t offset_bytes, std::span<const std::byte> bytes) override {
      if (Result<void> begun = owner_.begin_call("write", path_); !begun) {
        if (!owner_.is_power_cut()) {
          // A write that fails has often written something first.
          TP_RETURN_IF_ERROR(file_->write_at(offset_bytes, bytes.first(bytes.size() / 2)));
        }
        return begun;
      }
      return file_->write_at(offset_bytes, bytes);
    }

    Result<void> sync() override {
      TP_RETURN_IF_ERROR(owner_.begin_call("sync", path_));
      owner_.synced_[path_] = read_text(path_);
      return {};
    }

    Result<void> close() override {
      TP_RETURN_IF_ERROR(owner_.begin_call("close", path_));
      return file_->close();
    }

   private:
    FaultFileSystem& owner_;
    std::unique_ptr<WritableFile> file_;
    std::filesystem::path path_;
  };

  /// What is left of a file.
  static std::string survivor(const std::string& written, const std::string& synced, Loss loss) {
    if (loss == Loss::kData || loss == Loss::kDataAndNames) {
      return synced;
    }
    std::string left = synced;
    left.resize(written.size(), '\0');
    if (loss == Loss::kSomeData) {
      for (std::size_t at = 0; at < left.size(); at += 2 * kSectorBytes) {
        const std::size_t size = std::min(kSectorBytes, left.size() - at);
        left.replace(at, size, written, at, size);
      }
    }
    return left;
  }

  Result<void> begin_call(const std::string& what, const std::filesystem::path& path) {
    const std::uint64_t call = call_count_++;
    if (call == failing_call_ || call >= last_call_) {
      return std::unexpected(Error::from_errno(call >= last_call_ ? EIO : errno_value_,
                                               "can't " + what + " " + path.string(),
                                               ErrorCode::kOutput));
    }
    return {};
  }

  [[nodiscard]] bool is_power_cut() const { return call_count_ > last_call_; }

  /// What is known of files by path moves with a folder that is renamed.
  void follow_rename(const std::filesystem::path& from, const std::filesystem::path& to) {
    const auto moved = [&](const std::filesystem::path& path) {
      const std::filesystem::path rest = path.lexically_relative(from);
      if (rest.empty() || *rest.begin() == "..") {
        return path;
      }
      return rest == "." ? to : to / rest;
    };
    std::map<std::filesystem::path, std::string> synced;
    for (auto& [path, text] : synced_) {
      synced[moved(path)] = std::move(text);
    }
    synced_ = std::move(synced);
    for (Name& name : unsynced_names_) {
      name.folder = moved(name.folder);
      name.made = moved(name.made);
    }
  }

  void undo(const Name& name) {
    if (!std::filesystem::exists(std::filesystem::symlink_status(name.made))) {
      return;
    }
    if (name.old.empty()) {
      std::filesystem::remove_all(name.made);
      return;
    }
    std::filesystem::rename(name.made, name.old);
    follow_rename(name.made, name.old);
  }

  std::uint64_t call_count_ = 0;
  std::uint64_t failing_call_ = kNever;
  std::uint64_t last_call_ = kNever;
  int errno_value_ = EIO;
  std::optional<std::uint64_t> free_bytes_;
  std::map<std::filesystem::path, std::string> synced_;  ///< Durable contents of each file.
  std::vector<Name> unsynced_names_;                     ///< In order of their making.
};

}  // namespace trash_panda::testing
