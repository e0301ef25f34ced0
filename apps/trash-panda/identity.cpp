#include <algorithm>
#include <array>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <pwd.h>

#include "environment.h"
#include "hardware_cache.h"
#include "output_file.h"
#include "redaction.h"

namespace trash_panda::cli {

namespace {

constexpr std::size_t kSaltCharacters = 32;

std::string new_salt() {
  std::random_device device;
  std::string salt;
  while (salt.size() < kSaltCharacters) {
    salt += fmt::format("{:08x}", device());
  }
  return salt;
}

/// The salt in the cache, made there if need be; empty when it can be neither read nor made.
std::string kept_salt(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "salt";
  const auto read_salt = [&] {
    const Result<std::string> text = read_small_file(path, kSaltCharacters);
    return text && text->size() == kSaltCharacters ? *text : std::string();
  };
  if (std::string salt = read_salt(); !salt.empty()) {
    return salt;
  }
  if (!make_cache_folder(folder)) {
    return {};
  }
  // For its owner only: with the salt, tags could be guessed.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return read_salt();  // Another process was faster, or there is no place.
  }
  const std::string salt = new_salt();
  const bool is_written =
      ::write(fd, salt.data(), salt.size()) == static_cast<ssize_t>(salt.size());
  ::close(fd);
  return is_written ? salt : std::string();
}

/// Longest first, so that a name inside a longer one does not break that apart.
void tidy_names(std::vector<std::string>& names) {
  std::erase(names, "");
  std::ranges::sort(names, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  names.erase(std::ranges::unique(names).begin(), names.end());
}

void add_home(std::string home, std::vector<std::string>& homes) {
  while (home.size() > 1 && home.ends_with('/')) {
    home.pop_back();
  }
  homes.push_back(std::move(home));
}

/// Adds an account's login, full name and home.
void add_account(const passwd* account, Identity& identity) {
  if (account == nullptr) {
    return;
  }
  identity.users.emplace_back(account->pw_name);
  add_home(account->pw_dir, identity.homes);
  const std::string real_name = account->pw_gecos == nullptr ? "" : account->pw_gecos;
  identity.users.push_back(real_name.substr(0, real_name.find(',')));
}

}  // namespace

Identity find_identity(const std::filesystem::path& cache_folder) {
  Identity identity;
  for (const char* name : {"USER", "LOGNAME", "SUDO_USER"}) {
    const std::string user = environment_value(name);
    identity.users.push_back(user);
    add_account(user.empty() ? nullptr : ::getpwnam(user.c_str()), identity);
  }
  add_home(environment_value("HOME"), identity.homes);
  add_account(::getpwuid(::getuid()), identity);
  std::array<char, 256> host = {};
  if (::gethostname(host.data(), host.size() - 1) == 0) {
    identity.hosts.emplace_back(host.data());
  }
  identity.hosts.push_back(environment_value("HOSTNAME"));
  for (std::size_t index = 0, count = identity.hosts.size(); index < count; ++index) {
    const std::string& full = identity.hosts[index];
    identity.hosts.push_back(full.substr(0, full.find('.')));
  }
  tidy_names(identity.users);
  tidy_names(identity.hosts);
  tidy_names(identity.homes);
  identity.salt = cache_folder.empty() ? std::string() : kept_salt(cache_folder);
  if (identity.salt.empty()) {
    identity.salt = new_salt();
  }
  return identity;
}

}  // namespace trash_panda::cli
