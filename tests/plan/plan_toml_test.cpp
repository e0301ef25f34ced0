#include "trash_panda/plan/plan_toml.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/plan/prediction.h"

#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

using ::testing::HasSubstr;

Plan sample_plan() {
  Plan plan =
      make_plan(equal_model(3, 8192, 1000), machine_with_gpu(16ULL << 30, 12ULL << 30), {}).value();
  plan.warnings.clear();
  return plan;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

/// Every member that a file has a place for, given or not.
template <class Text>
PlanRequest random_request(std::mt19937_64& engine, const Text& random_text) {
  PlanRequest request;
  request.gpu_index = engine() % 3;
  request.headroom_vram_bytes = engine() % 2 == 0 ? engine() % 100'000 : kHeadroomVramBytes;
  for (std::optional<std::uint64_t>* amount :
       {&request.max_vram_bytes, &request.activation_vram_bytes, &request.max_ram_bytes,
        &request.min_free_ram_bytes, &request.max_pinned_bytes, &request.resident_blocks,
        &request.lookahead_blocks}) {
    if (engine() % 2 == 0) {
      *amount = engine() % 100'000;
    }
  }
  request.allow_disk = engine() % 2 == 0;
  for (std::size_t count = engine() % 3; count > 0; --count) {
    request.assignments.emplace_back(engine() % 2 == 0 ? Tier::kGpu : Tier::kDisk,
                                     random_text() + "*");
    request.groups.push_back(random_text());
  }
  request.placement = engine() % 2 == 0 ? PlacementMethod::kGreedy : PlacementMethod::kCost;
  if (engine() % 2 == 0) {
    request.context = {engine() % 1000, engine() % 10, engine() % 2 == 0 ? "bf16" : "fp8"};
  }
  if (engine() % 2 == 0) {
    request.compute_s = static_cast<double>(engine() % 100) / 7;
  }
  return request;
}

TEST(PlanToml, WritesWhatAPersonCanEdit) {
  Plan plan;
  plan.model_path = "/models/m.safetensors";
  plan.model_fingerprint = "abc";
  plan.model_bytes = 3000;
  plan.tensor_count = 4;
  plan.ram_total_bytes = 17'179'869'184;
  plan.ram_limit_bytes = 2'147'483'648;
  plan.ram_limit_source = "cgroup";
  plan.ram_budget_bytes = 1'073'741'824;
  plan.base_bytes = 1000;
  plan.slot_bytes = 4096;
  plan.lookahead_bytes = 0;
  plan.blocks.push_back({"layers.0", Tier::kDisk, 2000, 4096, 4000});
  EXPECT_EQ(write_plan_toml(plan),
            R"(# Plan of trash-panda. The tier of a block may be changed by hand: gpu, ram or disk.
# `trash-panda repack MODEL --plan THIS` lays the model out for it.
version = 1

[model]
path = "/models/m.safetensors"
fingerprint = "abc"
stored_bytes = 3000  # 3.00 kB
tensor_count = 4

[hardware]
ram_total_bytes = 17179869184  # 17.2 GB
ram_limit_bytes = 2147483648  # 2.15 GB
ram_limit_source = "cgroup"
gpu_name = ""
vram_total_bytes = 0  # 0 B

[budget]
ram_bytes = 1073741824  # 1.07 GB
vram_bytes = 0  # 0 B
base_bytes = 1000  # 1.00 kB
slot_bytes = 4096  # 4.10 kB
compute_slot_bytes = 0  # 0 B

[settings]
compute_dtype = "bf16"
lookahead_bytes = 0  # 0 B

[[block]]
name = "layers.0"
tier = "disk"
stored_bytes = 2000
extent_bytes = 4096
expanded_bytes = 4000
)");
}

TEST(PlanToml, ReadsBackWhatItWrites) {
  const Plan plan = sample_plan();
  EXPECT_EQ(parse_plan_toml(write_plan_toml(plan), "p.toml").value(), plan);
}

TEST(PlanToml, RoundTripsRandomPlans) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 engine(seed);
  const std::vector<std::string_view> pieces{
      "a", "\"", "\\", "\n", "\t", "\x01", "\x7f", "ä", "\xF0\x9F\xA6\x9D",
      " ", "#",  "'",  "]",  "=",  "\r"};
  const auto random_text = [&] {
    std::string text;
    for (std::size_t length = engine() % 12; length > 0; --length) {
      text += pieces[engine() % pieces.size()];
    }
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    Plan plan;
    for (std::string* text :
         {&plan.model_path, &plan.model_fingerprint, &plan.ram_limit_source, &plan.gpu_name}) {
      *text = random_text();
    }
    for (std::uint64_t* number :
         {&plan.tensor_count, &plan.ram_total_bytes, &plan.ram_limit_bytes, &plan.vram_total_bytes,
          &plan.ram_budget_bytes, &plan.vram_budget_bytes, &plan.base_bytes, &plan.slot_bytes,
          &plan.compute_slot_bytes, &plan.lookahead_bytes}) {
      *number = engine() >> (4 + engine() % 60);
    }
    plan.compute_dtype = engine() % 2 == 0 ? "keep" : "fp16";
    plan.model_bytes = engine() % 1000;
    plan.measured_at = engine() % 2 == 0 ? random_text() : "";
    plan.compute_source = std::array{"estimate", "profile", ""}[engine() % 3];
    for (std::optional<std::uint64_t>* rate :
         {&plan.rates.disk_bytes_per_s, &plan.rates.disk_request_bytes,
          &plan.rates.disk_queue_depth, &plan.rates.decode_bytes_per_s,
          &plan.rates.expand_bytes_per_s, &plan.rates.link_bytes_per_s}) {
      if (engine() % 2 == 0) {
        *rate = 1 + engine() % 100'000;
      }
    }
    plan.kv_cache_bytes = engine() % 2 * 4096;
    plan.host_slot_count = engine() % 4;
    plan.device_slot_count = engine() % 3;
    if (engine() % 2 == 0) {
      plan.predicted = Prediction{6, 0.1 + 1e-9, "disk", 1e-7, 1.0 / 3};
    }
    for (std::size_t count = engine() % 6; count > 0; --count) {
      PlannedBlock block;
      block.name = fmt::format("{}.{}", random_text(), count);
      block.tier = std::array{Tier::kGpu, Tier::kRam, Tier::kDisk}[engine() % 3];
      block.stored_bytes = engine() >> (20 + engine() % 40);
      block.extent_bytes = engine() >> (20 + engine() % 40);
      block.expanded_bytes = engine() >> (20 + engine() % 40);
      block.expand_bytes = engine() % 3 * 1000;
      block.compute_s = static_cast<double>(engine() % 3) / 7;
      if (engine() % 3 == 0) {
        block.form = engine() % 2 == 0 ? StorageForm::kExponent : StorageForm::kZstd;
        block.coded_bytes = 1 + engine() % 1000;
      }
      plan.model_bytes += block.stored_bytes;
      plan.blocks.push_back(block);
      (engine() % 2 == 0 ? plan.demote_gpu : plan.demote_ram).push_back(plan.blocks.size() - 1);
      plan.placed.push_back(std::array{Tier::kGpu, Tier::kRam, Tier::kDisk}[engine() % 3]);
    }
    plan.request = random_request(engine, random_text);
    plan.request.compute_dtype = plan.compute_dtype;
    plan.request.kv_cache_bytes = plan.kv_cache_bytes;
    if (plan.compute_source == "profile") {
      plan.request.profile_s.emplace();
      for (const PlannedBlock& block : plan.blocks) {
        plan.request.profile_s->push_back(block.compute_s);
      }
    }
    const std::string text = write_plan_toml(plan);
    const auto read = parse_plan_toml(text, "p.toml");
    ASSERT_TRUE(read) << read.error().to_string() << "\n" << text;
    EXPECT_EQ(*read, plan);
    EXPECT_EQ(write_plan_toml(*read), text);
  }
}

TEST(PlanToml, TakesARateOfZeroForNone) {
  Plan plan;
  plan.rates.disk_bytes_per_s = 0;
  plan.rates.link_bytes_per_s = 7;
  const Plan read = parse_plan_toml(write_plan_toml(plan), "p.toml").value();
  EXPECT_FALSE(read.rates.disk_bytes_per_s);
  EXPECT_EQ(read.rates.link_bytes_per_s, 7U);
}

TEST(PassModelOfAPlan, HasNoMoreSlotsThanBlocksCanUse) {
  Plan plan;
  plan.blocks.resize(3);
  plan.host_slot_count = plan.device_slot_count = 999'999'999'999;
  const PassModel model = pass_model(plan);
  EXPECT_EQ(model.host_slot_count, 4U);
  EXPECT_EQ(model.device_slot_count, 4U);
}

TEST(PlanToml, WritesWhatWasAskedForBesideTheDefaults) {
  PlanRequest request;
  request.max_ram_bytes = 8'000'000'000;
  request.allow_disk = false;
  request.assignments = {{Tier::kRam, "0-1"}, {Tier::kRam, "layers.2"}};
  const Plan plan = make_plan(equal_model(3, 8192, 1000), machine(16ULL << 30), request).value();
  EXPECT_THAT(write_plan_toml(plan),
              HasSubstr("[request]\nmax_ram_bytes = 8000000000  # 8.00 GB\nallow_disk = false\n"
                        "assign = [\"ram=0-1\", \"ram=layers.2\"]\n\n[settings]"));
  EXPECT_THAT(write_plan_toml(plan), HasSubstr("placed = \"rrr\"\n"));
  EXPECT_THAT(write_plan_toml(sample_plan()), ::testing::Not(HasSubstr("[request]")));
}

TEST(PlanToml, ReplacesBytesThatAreNotUtf8) {
  Plan plan = sample_plan();
  for (const char* bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    plan.model_path = std::string("/m/") + bad + "x";
    const auto read = parse_plan_toml(write_plan_toml(plan), "p.toml");
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_THAT(read->model_path, HasSubstr("\xEF\xBF\xBD"));
  }
}

TEST(PlanToml, HonoursTiersChangedByHand) {
  const std::string text = replaced(write_plan_toml(sample_plan()), "tier = \"gpu\"",
                                    "tier = 'disk'  # my drive is fast");
  const Plan plan = parse_plan_toml(text, "p.toml").value();
  EXPECT_EQ(plan.blocks[0].tier, Tier::kDisk);
  EXPECT_EQ(plan.blocks[1].tier, Tier::kGpu);
}

TEST(PlanToml, NamesTheNearestKeyOfAnUnknownOne) {
  const std::string text = write_plan_toml(sample_plan());
  const auto in_table =
      parse_plan_toml(replaced(text, "lookahead_bytes", "lookahed_bytes"), "p.toml");
  ASSERT_FALSE(in_table);
  EXPECT_EQ(in_table.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(in_table.error().message(), "p.toml:27:1: unknown key lookahed_bytes in [settings]");
  EXPECT_EQ(in_table.error().hint(), "did you mean lookahead_bytes?");
  const auto at_top = parse_plan_toml(replaced(text, "[settings]", "[setings]"), "p.toml");
  ASSERT_FALSE(at_top);
  EXPECT_EQ(at_top.error().hint(), "did you mean settings?");
  const auto in_block = parse_plan_toml(text + "colour = 1\n", "p.toml");
  ASSERT_FALSE(in_block);
  EXPECT_THAT(in_block.error().message(), HasSubstr("unknown key colour in [[block]]"));
  EXPECT_THAT(in_block.error().hint(), HasSubstr("name, tier"));
}

TEST(PlanToml, RefusesWrongValuesWithTheirPlace) {
  const std::string text = write_plan_toml(sample_plan());
  const struct {
    std::string_view from;
    std::string_view to;
    std::string_view message;
  } cases[] = {
      {"tier = \"gpu\"", "tier = \"vram\"", "tier must be gpu, ram or disk, not vram"},
      {"tier = \"gpu\"", "tier = \"base\"", "tier must be gpu, ram or disk, not base"},
      {"tier = \"gpu\"", "tier = 1", "tier must be a string"},
      {"slot_bytes = 0", "slot_bytes = -1", "slot_bytes must be a whole number from 0"},
      {"slot_bytes = 0", "slot_bytes = \"1 GB\"", "slot_bytes must be a whole number"},
      {"slot_bytes = 0", "slot_bytes = 1.5", "slot_bytes must be a whole number"},
      {"slot_bytes = 0", "slot_bytes = 9223372036854775807", "must be a whole number from 0 to"},
      {"slot_bytes = 0", "slot_bytes = ", ""},
      {"slot_bytes = 0", "", "slot_bytes is missing in [budget]"},
      {"compute_dtype = \"bf16\"", "compute_dtype = \"int4\"", "compute_dtype must be bf16"},
      {"\"layers.1\"", "\"layers.0\"", "a second block is named layers.0"},
      {"stored_bytes = 8192", "stored_bytes = 819200", "the model has 25576"},
      {"[model]", "[[model]]", "model must be a table"},
      {"[budget]", "[budget", ""},
      {"gpu = [0", "gpu = [3", "there is no block 3 to demote"},
      {"gpu = [0", "gpu = [-1", "gpu must be a whole number"},
      {"gpu = [", "gpu = 1 #", "gpu must be an array"},
      {"[budget]", "[predicted]\npass_s = -1.0\n[budget]", "pass_s must be a number of seconds"},
      {"[budget]", "[predicted]\npass_s = nan\n[budget]", "pass_s must be a number of seconds"},
      {"[budget]", "[predicted]\npass_s = 1\n[budget]", "bound_s is missing in [predicted]"},
      {"[budget]", "[rates]\ndisk_bytes_per_s = 1.5\n[budget]", "must be a whole number"},
      {"expanded_bytes = 8192", "expanded_bytes = 8192\nform = \"gzip\"",
       "form must be raw, exponent or zstd, not gzip"},
      {"expanded_bytes = 8192", "expanded_bytes = 8192\nform = \"zstd\"",
       "a block that is not raw needs its coded_bytes"},
      {"placed = \"ggg\"", "placed = \"ggx\"", "placed must be letters g, r and d"},
      {"[settings]", "[request]\nallow_disk = 1\n[settings]", "allow_disk must be true or false"},
      {"[settings]", "[request]\nassign = [\"base=1\"]\n[settings]", "'base=1' is not TIER=SEL"},
      {"[settings]", "[request]\nassign = [1]\n[settings]", "assign must be a string"},
      {"[settings]", "[request]\nplacement = \"best\"\n[settings]", "cost or greedy, not best"},
      {"[settings]", "[request]\nkv_dtype = \"int4\"\n[settings]", "fp8, not int4"},
      {"[settings]", "[request]\nmax_rom_bytes = 1\n[settings]", "unknown key max_rom_bytes"},
      {"version = 1\n", "", "version is missing"},
      {"version = 1\n", "version = 0\n", "plan version 0, this program reads 1"},
  };
  for (const auto& wrong : cases) {
    const auto plan = parse_plan_toml(replaced(text, wrong.from, wrong.to), "p.toml");
    ASSERT_FALSE(plan) << wrong.to;
    EXPECT_EQ(plan.error().code(), ErrorCode::kCorrupt) << wrong.to;
    EXPECT_THAT(plan.error().message(), HasSubstr(std::string(wrong.message)));
    EXPECT_THAT(plan.error().message(), ::testing::MatchesRegex("p\\.toml:[0-9]+:[0-9]+: .*"));
  }
}

TEST(PlanToml, RefusesANewerVersionEvenWithUnknownKeys) {
  const auto plan = parse_plan_toml("version = 2\nnews = true\n", "p.toml");
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), ErrorCode::kUnsupported);
}

TEST(PlanToml, RefusesWhatIsNoTomlOrNoPlan) {
  for (const char* text : {"", "{", "\xff\xfe", "a = 1", "block = 3\nversion = 1"}) {
    EXPECT_FALSE(parse_plan_toml(text, "p.toml")) << text;
  }
}

}  // namespace
}  // namespace trash_panda::plan
