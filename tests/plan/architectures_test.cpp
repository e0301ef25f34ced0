// The 35 recorded architectures beside a development checkout. Skipped where they are not there:
// block_groups_test.cpp tests each rule on its own.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trash_panda/format/text_arena.h"
#include "trash_panda/plan/block_groups.h"

#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

/// Prints, per architecture, "model NAME", "group PREFIX COUNT MIN MAX TOTAL" …,
/// "other COUNT BYTES" and "tensor BYTES NAME" ….
constexpr const char* kPrintScript = R"(
import json, lzma, sys
bits = {'BOOL': 8, 'U8': 8, 'I8': 8, 'F8_E4M3': 8, 'F8_E5M2': 8, 'F8_E8M0': 8, 'I16': 16, 'U16': 16,
        'F16': 16, 'BF16': 16, 'I32': 32, 'U32': 32, 'F32': 32, 'F64': 64, 'I64': 64, 'U64': 64}
expected = json.load(open(sys.argv[1] + '/expected_groups.json'))
for name, model in json.load(lzma.open(sys.argv[1] + '/tensors.json.xz', 'rt')).items():
    want = expected[name]
    out = ['model ' + name]
    for g in want['groups']:
        out.append('group %s %d %d %d %d' % (g['prefix'], g['count'], g['bytes_min'],
                                             g['bytes_max'], g['bytes_total']))
    out.append('other %d %d' % (want['other_tensors'], want['other_bytes']))
    for tensor, dtype, shape in model['tensors']:
        size = bits[dtype] // 8
        for dimension in shape:
            size *= dimension
        out.append('tensor %d %s' % (size, tensor))
    print('\n'.join(out))
)";

struct ExpectedGroup {
  std::uint64_t count = 0;
  std::uint64_t bytes_min = 0;
  std::uint64_t bytes_max = 0;
  std::uint64_t bytes_total = 0;

  bool operator==(const ExpectedGroup&) const = default;
};

struct Architecture {
  std::string name;
  std::map<std::string, ExpectedGroup> groups;
  std::uint64_t other_tensors = 0;
  std::uint64_t other_bytes = 0;
  std::vector<format::TensorRecord> tensors;
  format::TextArena tensor_names;
};

std::vector<Architecture> read_architectures(const std::filesystem::path& folder) {
  const std::string command = fmt::format("python3 -c \"{}\" '{}'", kPrintScript, folder.string());
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  std::string text;
  std::vector<char> chunk(1 << 16);
  while (const std::size_t got = pipe ? fread(chunk.data(), 1, chunk.size(), pipe.get()) : 0) {
    text.append(chunk.data(), got);
  }
  std::vector<Architecture> architectures;
  std::istringstream lines(text);
  std::string kind;
  while (lines >> kind) {
    if (kind == "model") {
      lines >> architectures.emplace_back().name;
    } else if (kind == "group") {
      std::string prefix;
      ExpectedGroup group;
      lines >> prefix >> group.count >> group.bytes_min >> group.bytes_max >> group.bytes_total;
      architectures.back().groups[prefix] = group;
    } else if (kind == "other") {
      lines >> architectures.back().other_tensors >> architectures.back().other_bytes;
    } else {
      format::TensorRecord tensor{};
      std::string name;
      lines >> tensor.size_bytes >> name;
      tensor.name = architectures.back().tensor_names.keep(name);
      architectures.back().tensors.push_back(std::move(tensor));
    }
  }
  return architectures;
}

ExpectedGroup measure(const BlockGroup& group) {
  ExpectedGroup measured{group.blocks.size(), group.blocks[0].stored_bytes, 0, 0};
  for (const Block& block : group.blocks) {
    measured.bytes_min = std::min(measured.bytes_min, block.stored_bytes);
    measured.bytes_max = std::max(measured.bytes_max, block.stored_bytes);
    measured.bytes_total += block.stored_bytes;
  }
  return measured;
}

/// How often each tensor is in a block or outside of all: once, or the model would change.
std::vector<int> count_places(const BlockMap& map, std::size_t tensor_count) {
  std::vector<int> places(tensor_count, 0);
  for (const BlockGroup& group : map.groups) {
    for (const Block& block : group.blocks) {
      std::ranges::for_each(block.tensors, [&places](std::size_t index) { ++places.at(index); });
    }
  }
  std::ranges::for_each(map.outside, [&places](std::size_t index) { ++places.at(index); });
  return places;
}

void expect_groups(const Architecture& architecture,
                   const std::vector<format::TensorRecord>& tensors) {
  const BlockMap map = find_blocks(tensors).value();
  EXPECT_EQ(map.groups.size(), architecture.groups.size());
  for (const BlockGroup& group : map.groups) {
    ASSERT_TRUE(architecture.groups.contains(group.prefix)) << group.prefix;
    EXPECT_EQ(measure(group), architecture.groups.at(group.prefix)) << group.prefix;
  }
  EXPECT_EQ(map.outside.size(), architecture.other_tensors);
  std::uint64_t outside_bytes = 0;
  for (const std::size_t index : map.outside) {
    outside_bytes += tensors[index].size_bytes;
  }
  EXPECT_EQ(outside_bytes, architecture.other_bytes);
  EXPECT_EQ(count_places(map, tensors.size()), std::vector<int>(tensors.size(), 1));
}

TEST(FindBlocks, FindsTheGroupsOfEveryRecordedArchitecture) {
  const std::filesystem::path folder =
      std::filesystem::path(TP_SOURCE_DIR) / ".." / "shared" / "arch";
  if (!std::filesystem::exists(folder / "tensors.json.xz") ||
      std::system("python3 -c 'import lzma' 2>/dev/null") != 0) {
    GTEST_SKIP() << "needs python3 and the architectures in " << folder;
  }
  const std::vector<Architecture> architectures = read_architectures(folder);
  EXPECT_EQ(architectures.size(), 35U);
  for (const Architecture& architecture : architectures) {
    SCOPED_TRACE(architecture.name);
    expect_groups(architecture, architecture.tensors);
    // Most writers sort by name: the groups must not hang on the order.
    std::vector<format::TensorRecord> sorted = architecture.tensors;
    std::ranges::sort(sorted, {}, &format::TensorRecord::name);
    expect_groups(architecture, sorted);
  }
}

/// Work that grows with the square of the tensors would meet the test runner's time limit here.
TEST(FindBlocks, TakesAHundredThousandTensors) {
  Names names;
  for (int layer = 0; layer < 61; ++layer) {
    names.add(fmt::format("model.layers.{}.self_attn.q_proj.weight", layer));
    names.add_list(fmt::format("model.layers.{}.mlp.experts.", layer), 256,
                   {"gate_proj.weight", "gate_proj.weight_scale_inv", "up_proj.weight",
                    "up_proj.weight_scale_inv", "down_proj.weight", "down_proj.weight_scale_inv"});
  }
  const BlockMap map = find_blocks(names.tensors()).value();
  ASSERT_EQ(map.groups.size(), 1U);
  EXPECT_EQ(map.groups[0].blocks.size(), 61U);
  EXPECT_TRUE(map.outside.empty());
}

}  // namespace
}  // namespace trash_panda::plan
