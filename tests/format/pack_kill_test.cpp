// Real processes that write packs, and SIGKILL at random moments.

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/pack_verify.h"
#include "trash_panda/format/pack_writer.h"

#include "format/support/checkpoint_builder.h"

namespace trash_panda::format {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;
using ::testing::IsEmpty;
using testing::must;
using testing::read_text;

/// TP_KILLS=200 for as many; these take about a second.
std::size_t kill_count() {
  const char* text = std::getenv("TP_KILLS");
  return text == nullptr ? 12 : std::stoul(text);
}

/// A checkpoint of twelve blocks of 1 MB.
class KillSample {
 public:
  KillSample() {
    for (int i = 0; i < 12; ++i) {
      builder_.add_random(fmt::format("layers.{}", i), Dtype::kU8, {1'000'001});
    }
    builder_.write(dir_ / "model.safetensors");
  }

  [[nodiscard]] const testing::TempDir& dir() const { return dir_; }

  [[nodiscard]] Result<Manifest> write(const std::filesystem::path& target) const {
    const Checkpoint checkpoint = must(Checkpoint::open(dir_ / "model.safetensors"));
    WeightTable weights;
    PackLayout layout;
    for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
      const std::string_view name = checkpoint.tensors()[i].name;
      weights.weights.push_back(
          {.name = name, .tensor_index = i, .dtype = Dtype::kU8, .scale = {}});
      layout.extents.push_back({.name = std::string(name),
                                .tier = i % 3 == 0 ? Tier::kRam : Tier::kDisk,
                                .weights = {i}});
    }
    PackOptions options;
    options.reserve_bytes = 0;
    options.journal_bytes = 1;
    return write_pack(FileSystem::posix(), checkpoint, weights, layout, target, options);
  }

  /// Writes in a process of its own, which is killed after `delay` if it still runs.
  void write_and_kill(const std::filesystem::path& target, microseconds delay) const {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(write(target) ? 0 : 1);
    }
    std::this_thread::sleep_for(delay);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  }

 private:
  testing::TempDir dir_;
  testing::SafetensorsBuilder builder_;
};

TEST(PackKill, LeavesNoneOrAWholePackAndARerunTakesOn) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const KillSample sample;
  const std::filesystem::path undisturbed = sample.dir() / "undisturbed";
  const auto start = steady_clock::now();
  must(sample.write(undisturbed));
  const auto whole_us =
      std::chrono::duration_cast<microseconds>(steady_clock::now() - start).count();
  std::size_t resumed_count = 0;
  for (std::size_t i = 0; i < kill_count(); ++i) {
    const std::filesystem::path target = sample.dir() / "pack";
    const microseconds delay(random() % static_cast<std::uint64_t>(whole_us));
    SCOPED_TRACE(fmt::format("killed after {} of {} us", delay.count(), whole_us));
    ASSERT_NO_FATAL_FAILURE(sample.write_and_kill(target, delay));
    if (!std::filesystem::exists(target)) {
      resumed_count += pack_can_resume(target) ? 1U : 0U;
      must(sample.write(target));
    }
    EXPECT_THAT(must(verify_pack(target, {})).mismatches, IsEmpty());
    for (const auto& entry : std::filesystem::directory_iterator(undisturbed)) {
      EXPECT_TRUE(read_text(entry.path()) == read_text(target / entry.path().filename()))
          << entry.path();
    }
    std::filesystem::remove_all(target);
    std::filesystem::remove_all(partial_pack_path(target));
  }
  RecordProperty("resumed", static_cast<int>(resumed_count));
}

}  // namespace
}  // namespace trash_panda::format
