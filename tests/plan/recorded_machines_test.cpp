#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/plan/hardware_json.h"

namespace trash_panda::plan {
namespace {

using ::testing::HasSubstr;

std::vector<std::filesystem::path> recorded_machines() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(TP_SOURCE_DIR "/schemas/examples/hardware")) {
    paths.push_back(entry.path());
  }
  return paths;
}

TEST(RecordedMachines, AreWhatWeWouldWrite) {
  const std::vector<std::filesystem::path> paths = recorded_machines();
  EXPECT_GE(paths.size(), 7U);
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto hardware = parse_hardware(text, path.native());
    ASSERT_TRUE(hardware) << hardware.error().to_string();
    EXPECT_EQ(write_hardware(*hardware), text) << path;
    EXPECT_THAT(hardware->note,
                ::testing::AnyOf(HasSubstr("Described, not measured"), HasSubstr("Measured")))
        << path;
    ASSERT_FALSE(hardware->disks.empty()) << path;
    EXPECT_GT(hardware->disks.front().read_bytes_per_s, 0U) << path;
    EXPECT_TRUE(!hardware->gpus.empty() || !hardware->gpu_note.empty()) << path;
  }
}

}  // namespace
}  // namespace trash_panda::plan
