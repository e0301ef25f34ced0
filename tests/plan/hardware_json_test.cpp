#include "trash_panda/plan/hardware_json.h"

#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "hardware_fields.h"

namespace trash_panda::plan {
namespace {

using ::testing::HasSubstr;

/// Fills every member, nested ones too, with something of its own: what one side of the document
/// forgets is then missed by a round trip.
class RandomFiller {
 public:
  explicit RandomFiller(std::uint64_t seed) : engine_(seed) {}

  template <class T>
  void operator()(const char* /*name*/, T& field) {
    fill(field);
  }
  void fill(std::uint64_t& number) { number = engine_() >> (1 + engine_() % 60); }
  void fill(bool& flag) { flag = engine_() % 2 == 0; }
  void fill(std::string& text) { text = fmt::format("t\"\\\n{}", engine_() % 1000); }
  template <class T>
  void fill(std::optional<T>& value) {
    if (engine_() % 3 != 0) {
      fill(value.emplace());
    }
  }
  template <class T>
  void fill(std::vector<T>& values) {
    values.resize(engine_() % 4);
    for (T& value : values) {
      fill(value);
    }
  }
  template <class T>
    requires std::is_aggregate_v<T>
  void fill(T& fields) {
    visit_fields(*this, fields);
  }

 private:
  std::mt19937_64 engine_;
};

TEST(HardwareJson, RoundTripsEveryMember) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  RandomFiller filler(seed);
  for (int round = 0; round < 200; ++round) {
    Hardware hardware;
    filler.fill(hardware);
    const std::string text = write_hardware(hardware);
    const auto read = parse_hardware(text, "hw.json");
    ASSERT_TRUE(read) << read.error().to_string() << "\n" << text;
    EXPECT_EQ(*read, hardware);
    EXPECT_EQ(write_hardware(*read), text);
  }
}

TEST(HardwareJson, WritesWhatWasNotMeasuredAsNull) {
  Hardware hardware;
  hardware.ram_total_bytes = 1024;
  hardware.gpus.push_back({"A", "GPU-0", 8, 4});
  const auto document = nlohmann::json::parse(write_hardware(hardware));
  EXPECT_EQ(document["schema"], "trash-panda/hardware/1");
  EXPECT_EQ(document["ram_total_bytes"], 1024);
  EXPECT_TRUE(document["cgroup_limit_bytes"].is_null());
  EXPECT_TRUE(document["gpus"][0]["h2d_pinned_bytes_per_s"].is_null());
  EXPECT_TRUE(document["gpus"][0]["expand"]["fp8_bytes_per_s"].is_null());
}

TEST(HardwareJson, ReadsWhatAPersonWrites) {
  const auto hardware = parse_hardware(
      R"({"schema": "trash-panda/hardware/1", "ram_total_bytes": 17179869184, "news": [1],
          "disks": [{"path": "/", "read_bytes_per_s": 400000000}],
          "gpus": [{"name": "RTX", "total_bytes": 12884901888, "h2d_pinned_bytes_per_s": null}]})",
      "hw.json");
  ASSERT_TRUE(hardware) << hardware.error().to_string();
  EXPECT_EQ(hardware->ram_total_bytes, 17'179'869'184U);
  EXPECT_EQ(hardware->disks.at(0).read_bytes_per_s, 400'000'000U);
  EXPECT_EQ(hardware->disks[0].buffered_bytes_per_s, std::nullopt);
  EXPECT_EQ(hardware->gpus.at(0).name, "RTX");
  EXPECT_EQ(hardware->gpus[0].h2d_pinned_bytes_per_s, std::nullopt);
}

TEST(HardwareJson, NamesTheMemberOfAWrongType) {
  const struct {
    std::string_view members;
    std::string_view message;
  } cases[] = {
      {R"("ram_total_bytes": -1)", "hw.json: ram_total_bytes must be a whole number from 0 to"},
      {R"("ram_total_bytes": 1.5)", "ram_total_bytes must be a whole number"},
      {R"("ram_total_bytes": 9223372036854775808)", "ram_total_bytes must be a whole number"},
      {R"("ram_total_bytes": "16 GB")", "ram_total_bytes must be a whole number"},
      {R"("disks": {})", "disks must be an array"},
      {R"("disks": [{}, 1])", "disks[1] must be an object"},
      {R"("disks": [{"is_network": 1}])", "disks[0].is_network must be true or false"},
      {R"("gpus": [{"link": {"width": "x16"}}])", "gpus[0].link.width must be a whole number"},
      {R"("cpu": {"features": [2]})", "cpu.features[0] must be a string"},
  };
  for (const auto& wrong : cases) {
    const auto hardware = parse_hardware(
        fmt::format(R"({{"schema": "trash-panda/hardware/1", {}}})", wrong.members), "hw.json");
    ASSERT_FALSE(hardware) << wrong.members;
    EXPECT_EQ(hardware.error().code(), ErrorCode::kCorrupt);
    EXPECT_THAT(hardware.error().message(), HasSubstr(std::string(wrong.message)));
  }
}

TEST(HardwareJson, RefusesHostileNesting) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const Result<Hardware> hardware = parse_hardware(R"({"schema": )" + deep + "}", "h.json");
  ASSERT_FALSE(hardware);
  EXPECT_EQ(hardware.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(hardware.error().to_string(), "h.json: nested deeper than 127 levels");
}

TEST(HardwareJson, RefusesOtherDocuments) {
  for (const char* text :
       {"", "{", "[]", "1", "{}", R"({"schema": 1})", R"({"schema": "trash-panda/plan/1"})"}) {
    const auto hardware = parse_hardware(text, "hw.json");
    ASSERT_FALSE(hardware) << text;
    EXPECT_EQ(hardware.error().code(), ErrorCode::kCorrupt) << text;
    EXPECT_THAT(hardware.error().message(), HasSubstr("hw.json: "));
  }
  const auto newer = parse_hardware(R"({"schema": "trash-panda/hardware/2"})", "hw.json");
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace trash_panda::plan
