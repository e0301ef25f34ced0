#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/hardware.h"

namespace trash_panda::cli {

/// What is known to be private on this machine.
struct Identity {
  std::vector<std::string> users;  ///< Login names.
  std::vector<std::string> hosts;  ///< With and without domain.
  std::vector<std::string> homes;  ///< Home folders, without a final slash.
  std::string salt;                ///< Makes tags unguessable; equal salts give equal tags.
};

/// Replaces whatever might tell who or where someone is: users, hosts, home folders, UUIDs,
/// network and hardware addresses, servers, serial numbers, tokens. It rather takes too much.
///
/// A home folder becomes "~", the rest tags such as "<host-3f2a>": equal texts get equal tags, so
/// that a report can still be followed.
[[nodiscard]] std::string redact(std::string_view text, const Identity& identity);

/// Applies redact() to every text of the description, whichever members it may have.
[[nodiscard]] Result<plan::Hardware> redact(const plan::Hardware& hardware,
                                            const Identity& identity);

/// Asks the system and the environment who we are. The salt is the machine's own, kept in
/// `cache_folder`, so that two reports of one machine can be compared; random when it can't be.
[[nodiscard]] Identity find_identity(const std::filesystem::path& cache_folder);

}  // namespace trash_panda::cli
