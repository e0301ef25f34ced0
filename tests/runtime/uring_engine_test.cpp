#include "uring_engine.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/units.h"

#include "base/support/temp_dir.h"
#include "format/support/checkpoint_builder.h"
#include "uring_setup.h"

// What is particular to io_uring: faults of a drive, what the system refuses, and how that is told.
// That it reads as every engine does is in io_engine_test.cpp.

namespace trash_panda::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trash_panda::testing::must;
using trash_panda::testing::random_bytes;
using trash_panda::testing::TempDir;
using trash_panda::testing::write_text;

/// Another user's memory may be locked up to this: what Debian gives.
constexpr std::uint64_t kLockedBytes = 8 * kMiB;
/// Tells the tests in a child without capabilities that they are there.
constexpr const char* kUnprivilegedVariable = "TP_TEST_UNPRIVILEGED";

class UringEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto engine = make_uring_engine({});
    if (!engine && engine.error().code() == ErrorCode::kDevice) {
      GTEST_SKIP() << engine.error().to_string();
    }
    write_text(folder_ / "data", text_);
    file_ = must(File::open(folder_ / "data", ReadMode::kDirect));
  }

  /// Reads the whole file in one request.
  Result<void> read(IoEngine& engine) {
    std::promise<Result<void>> done;
    engine.submit({.file = &file_,
                   .offset_bytes = 0,
                   .target = memory_.span(),
                   .completion = [&](Result<void> result) { done.set_value(std::move(result)); }});
    return done.get_future().get();
  }

  [[nodiscard]] std::string memory_text() const {
    return {reinterpret_cast<const char*>(memory_.data()), memory_.size_bytes()};
  }

  /// Keeps what is logged.
  [[nodiscard]] Logger logger() {
    return [this](LogLevel, std::string_view line) { lines_.emplace_back(line); };
  }

  TempDir folder_;
  std::string text_ = random_bytes(64 * kKiB, 7);
  File file_;
  AlignedBuffer memory_ = must(AlignedBuffer::create(64 * kKiB));
  std::vector<std::string> lines_;
};

TEST_F(UringEngineTest, ErrorOfTheDriveIsPassedOn) {
  const auto engine = must(make_uring_engine({}, [](std::int32_t) { return -EIO; }));
  const Result<void> result = read(*engine);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kFailed);
  EXPECT_EQ(result.error().errno_value(), EIO);
  EXPECT_EQ(result.error().message(), "reading 65536 bytes at 0 of " + printable(folder_ / "data") +
                                          " failed: Input/output error");
}

TEST_F(UringEngineTest, ErrorAfterAShortReadNamesWhatWasMissing) {
  const auto engine = must(make_uring_engine(
      {}, [calls = 0](std::int32_t) mutable { return calls++ == 0 ? 16384 : -EIO; }));
  EXPECT_THAT(read(*engine).error().message(), HasSubstr("reading 49152 bytes at 16384 of "));
}

TEST_F(UringEngineTest, ErrorThatNeverPassesEndsTheRead) {
  for (const int errno_value : {EINTR, EAGAIN}) {
    const auto engine =
        must(make_uring_engine({}, [errno_value](std::int32_t) { return -errno_value; }));
    const Result<void> result = read(*engine);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().errno_value(), errno_value);
  }
}

TEST_F(UringEngineTest, DirectReadCutInsideABlockIsTheEndOfTheFile) {
  if (file_.mode() != ReadMode::kDirect) {
    GTEST_SKIP() << folder_.path() << " takes no direct reads";
  }
  const auto engine = must(make_uring_engine({}, [](std::int32_t) { return 8191; }));
  const Result<void> result = read(*engine);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().reason(), "truncated");
}

TEST_F(UringEngineTest, RegistersWhatItIsToldBeforehand) {
  const auto engine = must(make_uring_engine(
      {.depth = 3, .files = {&file_}, .memory = {memory_.span()}, .log = logger()}));
  EXPECT_EQ(engine->description(), "io_uring x3, registered buffers");
  EXPECT_THAT(lines_, IsEmpty());
  ASSERT_TRUE(read(*engine));
  EXPECT_TRUE(memory_text() == text_);
}

TEST(CutForRegistration, MakesPiecesOfAGigabyteAtMost) {
  // Mapped, never touched: it takes no memory.
  const AlignedBuffer large = must(AlignedBuffer::create(2 * kGiB + 4096));
  const auto sizes = [&](std::uint64_t size_bytes) {
    std::vector<std::uint64_t> found;
    std::byte* next = large.data();
    for (const std::span<std::byte> piece : cut_for_registration(large.span().first(size_bytes))) {
      EXPECT_EQ(piece.data(), next);
      next += piece.size();
      found.push_back(piece.size());
    }
    return found;
  };
  EXPECT_THAT(sizes(0), IsEmpty());
  EXPECT_THAT(sizes(1 * kGiB), ElementsAre(1 * kGiB));
  EXPECT_THAT(sizes(1 * kGiB + 4096), ElementsAre(1 * kGiB, 4096));
  EXPECT_THAT(sizes(2 * kGiB + 4096), ElementsAre(1 * kGiB, 1 * kGiB, 4096));
}

TEST_F(UringEngineTest, MemoryThatMayNotBeLockedIsReadIntoAllTheSame) {
  if (std::getenv(kUnprivilegedVariable) == nullptr) {
    GTEST_SKIP() << "runs in UringUnprivileged.KeepsTheContract";
  }
  const AlignedBuffer large = must(AlignedBuffer::create(4 * kLockedBytes));
  const auto engine =
      must(make_uring_engine({.memory = {memory_.span(), large.span()}, .log = logger()}));
  EXPECT_EQ(engine->description(), "io_uring x4");
  EXPECT_THAT(lines_, ElementsAre("io_uring: 33.6 MB of buffers stay unregistered (Cannot allocate "
                                  "memory; locked memory is limited to 8.39 MB), which costs a "
                                  "little CPU time; \"ulimit -l\" raises the limit"));
  ASSERT_TRUE(read(*engine));
  EXPECT_TRUE(memory_text() == text_);
}

/// Forbids one system call to this process from now on, as a container's filter does.
void forbid_system_call(unsigned number, unsigned errno_value) {
  std::array filter = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errno_value),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = filter.size(), .filter = filter.data()};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program),
            0);
}

/// What is told of a system without io_uring, on stderr; ends the process.
void print_fallback(unsigned errno_value) {
  forbid_system_call(SYS_io_uring_setup, errno_value);
  std::string lines;
  const auto engine = make_io_engine({.log = [&](LogLevel level, std::string_view line) {
    lines += level == LogLevel::kWarning ? std::string(line) + '\n' : std::string("no warning");
  }});
  const auto asked_for = make_io_engine({.backend = IoBackend::kUring});
  const bool is_refused = !asked_for && asked_for.error().code() == ErrorCode::kDevice;
  std::fputs(lines.c_str(), stderr);
  std::fputs(engine ? (*engine)->description().c_str() : "no engine", stderr);
  std::_Exit(is_refused ? 0 : 1);
}

TEST(UringRefused, IsReportedAndThreadsReadInstead) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(print_fallback(ENOSYS), ::testing::ExitedWithCode(0),
              "io_uring refused \\(Function not implemented\\): using pread; it needs Linux 5.6, "
              "and no filter that hides it\npread x4");
  EXPECT_EXIT(print_fallback(EPERM), ::testing::ExitedWithCode(0),
              "io_uring refused \\(Operation not permitted; .*\\): using pread; .*\npread x4");
}

/// Reads, forbids the ring, reads again, and prints how that went; ends the process.
void read_with_a_ring_that_breaks(const std::filesystem::path& path) {
  const File file = must(File::open(path));
  const AlignedBuffer memory = must(AlignedBuffer::create(4096));
  auto engine = must(make_uring_engine({}));
  const auto read = [&] {
    std::promise<Result<void>> done;
    engine->submit(
        {&file, 0, memory.span(), [&](Result<void> result) { done.set_value(std::move(result)); }});
    return done.get_future().get();
  };
  if (!read()) {
    std::_Exit(2);
  }
  forbid_system_call(SYS_io_uring_enter, EACCES);
  // One may be under way already when the ring breaks; none may hang.
  for (int at = 0; at < 3; ++at) {
    const Result<void> result = read();
    std::fputs(result ? "read\n" : (result.error().message() + '\n').c_str(), stderr);
  }
  engine.reset();
  std::_Exit(0);
}

TEST_F(UringEngineTest, RingThatBreaksFailsReadsAndHangsNone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(read_with_a_ring_that_breaks(folder_ / "data"), ::testing::ExitedWithCode(0),
              "io_uring does not take reads any more: Permission denied\n$");
}

TEST(UringUnprivileged, KeepsTheContract) {
  if (std::getenv(kUnprivilegedVariable) != nullptr) {
    GTEST_SKIP() << "this is the child";
  }
  if (::geteuid() != 0) {
    GTEST_SKIP() << "becoming a user without capabilities needs root; all tests run as such anyway";
  }
  if (std::system("command -v setpriv >/dev/null") != 0) {
    GTEST_SKIP() << "setpriv (util-linux) is missing";
  }
  TempDir folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      "exec setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all "
      "--inh-caps=-all -- ";
  if (std::system((command + "test -x '" + program + "'").c_str()) != 0) {
    GTEST_SKIP() << program << " is not reachable for other users";
  }
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit = {.rlim_cur = kLockedBytes, .rlim_max = kLockedBytes};
    ::setrlimit(RLIMIT_MEMLOCK, &limit);
    ::setenv(kUnprivilegedVariable, "1", 1);
    ::setenv("TMPDIR", folder.path().c_str(), 1);
    ::unsetenv("GTEST_OUTPUT");
    const std::string run =
        command + "'" + program + "' --gtest_brief=1 '--gtest_filter=UringEngineTest.*:Engines*'";
    ::execl("/bin/sh", "sh", "-c", run.c_str(), nullptr);
    std::_Exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

}  // namespace
}  // namespace trash_panda::runtime
