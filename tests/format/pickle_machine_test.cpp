#include "pickle_machine.h"

#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/torch_builder.h"

namespace trash_panda::format {
namespace {

using namespace testing::pickle;
using ::testing::HasSubstr;
using testing::little_endian;

Result<PickleGraph> run_pickle(const std::string& bytes) {
  return PickleMachine::run(std::as_bytes(std::span(bytes)));
}

/// "opens", or the class of the error.
std::string pickle_verdict(const std::string& value) {
  const Result<PickleGraph> graph = run_pickle(whole(value));
  return graph ? "opens" : std::string(graph.error().reason());
}

void expect_names(const std::string& value, const std::string& name) {
  const Result<PickleGraph> graph = run_pickle(whole(value));
  ASSERT_FALSE(graph) << name;
  EXPECT_EQ(graph.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(graph.error().reason(), "pickle");
  EXPECT_THAT(graph.error().message(), HasSubstr(name));
  EXPECT_THAT(graph.error().message(), HasSubstr("nothing was executed"));
  EXPECT_THAT(graph.error().hint(), HasSubstr("safetensors"));
}

TEST(PickleMachine, RefusesEveryOtherNameByIt) {
  const std::string call = text("true") + "\x85R";
  expect_names(global("os", "system") + call, "os.system");
  expect_names(global("posix", "system") + call, "posix.system");
  expect_names(global("__builtin__", "eval") + call, "__builtin__.eval");
  expect_names(global("builtins", "exec") + call, "builtins.exec");
  expect_names(global("torch", "load") + call, "torch.load");
  expect_names(global("torch._utils", "_rebuild_tensor_v2x") + call, "_rebuild_tensor_v2x");
  expect_names(global("pytorch_lightning.callbacks.model_checkpoint", "ModelCheckpoint"),
               "pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint");
  expect_names(global("collections.OrderedDict", "__init__"), "__init__");
  expect_names(global("numpy.core.multiarray", "scalar"), "numpy.core.multiarray.scalar");
}

TEST(PickleMachine, RefusesNamesFromTheStackAlike) {
  expect_names(text("os") + text("system") + "\x93" + text("true") + "\x85R", "os.system");
  EXPECT_EQ(pickle_verdict(text("collections") + text("OrderedDict") + "\x93)R"), "opens");
  EXPECT_EQ(pickle_verdict(text("collections") + "N\x93"), "pickle");
}

TEST(PickleMachine, RefusesOpcodesThatMakeObjects) {
  expect_names("(ios\nsystem\n", "INST");
  expect_names("(" + ordered_dict() + "o", "OBJ");
  expect_names(global("collections", "OrderedDict") + ")\x81", "NEWOBJ");
  expect_names(std::string("\x82\x01", 2), "EXT1");
  expect_names("P0\n", "PERSID");
}

TEST(PickleMachine, ShowsNamesOnOneLine) {
  const Result<PickleGraph> graph = run_pickle(whole("ca\x1b[31m\rb\nevil\n"));
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().message().find('\x1b'), std::string::npos);
  EXPECT_EQ(graph.error().message().find('\r'), std::string::npos);
}

TEST(PickleMachine, CallsNothingButWhatItKnows) {
  EXPECT_EQ(pickle_verdict(global("torch", "FloatStorage") + ")R"), "pickle");
  EXPECT_EQ(pickle_verdict(global("torch", "float32") + ")R"), "pickle");
  EXPECT_EQ(pickle_verdict(integer(1) + ")R"), "pickle");
  EXPECT_EQ(pickle_verdict(global("torch", "Size") + numbers({2, 3}) + "\x85R"), "opens");
  EXPECT_EQ(pickle_verdict(global("torch", "Size") + ")R"), "pickle");
}

TEST(PickleMachine, SetsStateOfDictsOnly) {
  const std::string metadata = dict(text("_metadata") + ordered_dict());
  EXPECT_EQ(pickle_verdict(ordered_dict() + metadata + "b"), "opens");
  EXPECT_EQ(pickle_verdict("]" + metadata + "b"), "pickle");
  EXPECT_EQ(pickle_verdict(integer(1) + metadata + "b"), "pickle");
}

TEST(PickleMachine, BuildsWhatTheOpcodesSay) {
  const std::string value = dict(text("list") + "](" + integer(-5) +
                                 "K\x07"
                                 "M\x01\x02"
                                 "e" +
                                 text("none") + "N" + text("half") + "G" + std::string(8, '\0') +
                                 "U\x03old"
                                 "\x88");
  const std::string bytes = whole(value) + "behind";
  const Result<PickleGraph> graph = run_pickle(bytes);
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(graph->end_bytes, whole(value).size());
  ASSERT_EQ(graph->root.kind, PickleKind::kDict);
  const auto values = graph->values(graph->root);
  ASSERT_EQ(values.size(), 8U);
  EXPECT_EQ(graph->string(values[0]), "list");
  const auto list = graph->values(values[1]);
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(static_cast<std::int64_t>(list[0].payload), -5);
  EXPECT_EQ(list[1].payload, 7U);
  EXPECT_EQ(list[2].payload, 0x201U);
  EXPECT_EQ(graph->string(values[6]), "old");
  EXPECT_EQ(values[7].kind, PickleKind::kBool);
}

TEST(PickleMachine, KeepsTheLastValueOfAKeyInThePlaceOfItsFirst) {
  const std::string bytes = whole(dict(text("a") + "K\x01" + integer(7) + "K\x02" + "NK\x03") +
                                  text("a") + "K\x04s" + "\x88K\x05s" + integer(1) + "K\x06s" +
                                  text("b") + "K\x07s" + text("a") + "K\x08s" + "NK\x09s");
  const Result<PickleGraph> graph = run_pickle(bytes);
  ASSERT_TRUE(graph) << graph.error().to_string();
  std::vector<std::uint64_t> payloads;
  const auto values = graph->values(graph->root);
  for (std::size_t i = 1; i < values.size(); i += 2) {
    payloads.push_back(values[i].payload);
  }
  // "a", 7, None, True, "b", and None again: such keys name nothing.
  EXPECT_EQ(payloads, (std::vector<std::uint64_t>{8, 2, 3, 6, 7, 9}));
}

TEST(PickleMachine, TakesTheOrderedDictsOfPython2) {
  const std::string pairs = "](](" + text("a") + integer(1) + "ee";
  const Result<PickleGraph> graph =
      run_pickle(whole(global("collections", "OrderedDict") + pairs + "\x85R"));
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(graph->values(graph->root).size(), 2U);
  EXPECT_EQ(pickle_verdict(global("collections", "OrderedDict") + "](](" + text("a") + "ee\x85R"),
            "pickle");
}

TEST(PickleMachine, RemembersValues) {
  const std::string bytes =
      whole(text("key") + std::string("q\0", 2) + text("other") + "r" + little_endian(1, 4) + "0" +
            std::string("h\0", 2) + "j" + little_endian(1, 4) + "\x87");
  const Result<PickleGraph> graph = run_pickle(bytes);
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(graph->string(graph->values(graph->root)[2]), "other");
  EXPECT_EQ(pickle_verdict("Nh\x05"), "pickle");
  EXPECT_EQ(pickle_verdict("Nr" + little_endian(4'000'000'000, 4)), "pickle");
}

TEST(PickleMachine, RefusesWhatTheStackDoesNotHold) {
  for (const std::string value :
       {"",     "0",    "t",      "e",       "u",    "a",    "s",  "R",    "b", "Q",
        "\x85", "\x87", "NN\x87", "N(\x85t", "]N(e", "}(Nu", "Na", "(N0u", "1", "(s"}) {
    EXPECT_EQ(pickle_verdict(value), "pickle") << value;
  }
}

TEST(PickleMachine, TellsWhereABrokenOneEnds) {
  const std::string sound =
      whole(dict(text("a") + global("torch", "float32") + text("b") + integer(3)));
  for (std::size_t size = 0; size < sound.size(); ++size) {
    const Result<PickleGraph> graph = run_pickle(sound.substr(0, size));
    ASSERT_FALSE(graph);
    EXPECT_EQ(graph.error().reason(), "truncated") << size;
  }
  EXPECT_EQ(pickle_verdict("X\xff\xff\xff\xff"), "truncated");
  EXPECT_EQ(pickle_verdict("\x8d" + little_endian(~std::uint64_t{0}, 8)), "truncated");
  EXPECT_EQ(pickle_verdict("c" + std::string(2000, 'a')), "pickle");
  EXPECT_EQ(pickle_verdict("\xee"), "pickle");
}

TEST(PickleMachine, TakesTheStorageItself) {
  EXPECT_EQ(pickle_verdict(storage("FloatStorage", "0", 4)), "opens");
  expect_names(storage("ComplexDoubleStorage", "0", 4), "torch.ComplexDoubleStorage");
  EXPECT_EQ(pickle_verdict(storage("float32", "0", 4)), "pickle");
  EXPECT_EQ(pickle_verdict(tuple(text("module") + integer(1)) + "Q"), "pickle");
  EXPECT_EQ(pickle_verdict(storage("FloatStorage", "0", ~std::uint64_t{0})), "pickle");
}

TEST(PickleMachine, NeedsMemoryInProportionOnly) {
  // Pairs of pairs of one list: 2^n items if each were copied.
  std::string doubling = "](NNe";
  for (int i = 0; i < 60; ++i) {
    doubling += "2\x86";
  }
  EXPECT_EQ(pickle_verdict(doubling), "opens");
  // A list of 100,000 pairs, given to OrderedDict a thousand times, is.
  std::string pairs = "](";
  for (int i = 0; i < 100'000; ++i) {
    pairs += "NN\x86";
  }
  pairs += "e" + std::string("q\0", 2);
  std::string calls;
  for (int i = 0; i < 1000; ++i) {
    calls += global("collections", "OrderedDict") + std::string("h\0", 2) + "\x85R";
  }
  const Result<PickleGraph> graph = run_pickle(whole(pairs + calls));
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message(), HasSubstr("the limit"));
  // A small pickle has a small limit: 6 bytes make 8,000 values here, each time.
  std::string small = "](";
  for (int i = 0; i < 4000; ++i) {
    small += std::string("NN\x86");
  }
  const std::string kept = small + "e" + std::string("q\0", 2);
  const std::string call = std::string("h\1h\0\x85R", 6);
  const std::string name = global("collections", "OrderedDict") + std::string("q\1", 2);
  EXPECT_EQ(pickle_verdict(kept + name + call), "opens");
  EXPECT_EQ(pickle_verdict(kept + name + call + call + call + call + call + call), "pickle");
}

}  // namespace
}  // namespace trash_panda::format
