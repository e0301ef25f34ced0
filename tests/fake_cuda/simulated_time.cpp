#include "simulated_time.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <unistd.h>

namespace trash_panda::fake_cuda {

namespace {

/// The file of one thread; empty when the thread has ended, even while the file is read, which a
/// stream buffer used without its stream would answer with an exception.
std::string read_status(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// How often each other thread has run, if all of them sleep now.
std::optional<std::map<std::string, std::string>> sleeping_threads() {
  std::map<std::string, std::string> threads;
  const std::string self = std::to_string(::gettid());
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/task", error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string id = entry->path().filename();
    if (id == self) {
      continue;
    }
    const std::string status = read_status(entry->path() / "status");
    const std::size_t switches = status.find("voluntary_ctxt_switches");
    if (status.find("State:\tS") == std::string::npos || switches == std::string::npos) {
      return std::nullopt;
    }
    threads[id] = status.substr(switches);
  }
  return error ? std::nullopt : std::optional(threads);
}

/// Whether nothing will happen unless time moves on: all threads sleep, and none has run between
/// two looks, as one could wake another and fall asleep between looking at the one and the other.
bool is_quiet() {
  const auto before = sleeping_threads();
  return before && sleeping_threads() == before;
}

}  // namespace

void SimulatedTime::start() {
  now_ = Duration{0};
  mover_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void SimulatedTime::stop() {
  mover_ = std::jthread();
}

void SimulatedTime::sleep_until(Lock& lock, Duration time) {
  const auto place = sleepers_.insert(time);
  changed_.wait(lock, [&] { return now_ >= time; });
  sleepers_.erase(place);
}

void SimulatedTime::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (!is_quiet()) {
      continue;
    }
    const std::lock_guard lock(mutex_);
    const auto next = sleepers_.upper_bound(now_);
    if (next != sleepers_.end()) {
      now_ = *next;
      changed_.notify_all();
    }
  }
}

}  // namespace trash_panda::fake_cuda
