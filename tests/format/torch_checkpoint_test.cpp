// Checkpoints of torch.save() through Checkpoint::open(): values bit for bit, refusals by name.

#include <cstdint>
#include <filesystem>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/weights.h"

#include "support/torch_builder.h"

namespace trash_panda::format {
namespace {

using namespace testing::pickle;
using testing::bytes_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::PickledView;
using testing::TempDir;
using testing::TorchBuilder;
using testing::write_text;
using testing::ZipBuilder;

constexpr std::uint64_t kStorageElements = 24;

/// 0, 1, 2, … as F32, so that an element says where it was.
std::string counting_bytes(std::size_t count = kStorageElements) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return bytes_of(values);
}

PickledView view(std::vector<std::uint64_t> shape, std::vector<std::uint64_t> strides,
                 std::uint64_t offset = 0) {
  return {.count = kStorageElements,
          .offset = offset,
          .shape = std::move(shape),
          .strides = std::move(strides)};
}

/// A file in a folder of its own.
class TorchFile {
 public:
  explicit TorchFile(const std::string& bytes, const std::string& name = "model.pt")
      : path_(dir_ / name) {
    write_text(path_, bytes);
  }
  explicit TorchFile(const TorchBuilder& builder) : TorchFile(builder.zip().file()) {}

  [[nodiscard]] Result<Checkpoint> open() const { return Checkpoint::open(path_); }
  [[nodiscard]] Error error() const {
    Result<Checkpoint> checkpoint = open();
    return checkpoint ? Error(ErrorCode::kFailed, "opened") : std::move(checkpoint).error();
  }

 private:
  TempDir dir_;
  std::filesystem::path path_;
};

/// A dict of these, in one storage of counting numbers.
TorchBuilder views(const std::vector<std::pair<std::string, PickledView>>& tensors) {
  std::string items;
  for (const auto& [name, tensor] : tensors) {
    items += text(name) + tensor.pickled();
  }
  return TorchBuilder().root(dict(items)).storage("0", counting_bytes());
}

std::vector<float> values_of(const Checkpoint& checkpoint, const std::string& name) {
  const auto index = checkpoint.find(name);
  EXPECT_TRUE(index) << name;
  std::vector<float> values(index ? checkpoint.tensors()[*index].size_bytes / sizeof(float) : 0);
  const auto read =
      checkpoint.read_tensor(index.value_or(0), std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(read) << read.error().to_string();
  return values;
}

std::vector<std::string> stored_names(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const TensorRecord& tensor : checkpoint.tensors()) {
    names.emplace_back(tensor.name);
  }
  return names;
}

TEST(TorchCheckpoint, ReadsAStateDict) {
  const TorchFile file(
      views({{"blocks.0.weight", view({2, 3}, {3, 1})}, {"blocks.0.bias", view({4}, {1}, 6)}}));
  const auto checkpoint = file.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_THAT(stored_names(*checkpoint), ElementsAre("blocks.0.weight", "blocks.0.bias"));
  EXPECT_EQ(checkpoint->tensors()[0].dtype, Dtype::kF32);
  EXPECT_THAT(checkpoint->tensors()[0].shape, ElementsAre(2, 3));
  EXPECT_THAT(checkpoint->tensors()[0].strides, ElementsAre());
  EXPECT_THAT(values_of(*checkpoint, "blocks.0.weight"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(values_of(*checkpoint, "blocks.0.bias"), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(checkpoint->notes(), ElementsAre());
}

TEST(TorchCheckpoint, ReadsLargeArchives) {
  const TorchBuilder builder = views({{"a", view({2, 2}, {2, 1}, 3)}});
  const TorchFile file(builder.zip(testing::ZipSizes::kIn64Bits).file());
  const auto checkpoint = file.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_THAT(values_of(*checkpoint, "a"), ElementsAre(3, 4, 5, 6));
}

TEST(TorchCheckpoint, GathersViewsInRowMajorOrder) {
  const TorchFile file(views({{"transposed", view({2, 3}, {1, 2})},
                              {"sliced", view({2, 2}, {6, 1}, 7)},
                              {"expanded", view({3, 2}, {0, 1}, 4)},
                              {"column", view({4, 1}, {6, 9}, 5)},
                              {"permuted", view({2, 3, 4}, {1, 8, 2})}}));
  const auto checkpoint = file.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_THAT(values_of(*checkpoint, "transposed"), ElementsAre(0, 2, 4, 1, 3, 5));
  EXPECT_THAT(values_of(*checkpoint, "sliced"), ElementsAre(7, 8, 13, 14));
  EXPECT_THAT(values_of(*checkpoint, "expanded"), ElementsAre(4, 5, 4, 5, 4, 5));
  EXPECT_THAT(values_of(*checkpoint, "column"), ElementsAre(5, 11, 17, 23));
  EXPECT_THAT(values_of(*checkpoint, "permuted"),
              ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 1, 3, 5, 7, 9, 11, 13, 15, 17,
                          19, 21, 23));
}

TEST(TorchCheckpoint, NamesWhatSharesMemoryOnce) {
  const TorchFile file(views({{"embed.weight", view({2, 3}, {3, 1})},
                              {"head.weight", view({2, 3}, {3, 1})},
                              {"head.part", view({3}, {1})},
                              {"layers.0.weight", view({6}, {1}, 6)},
                              {"layers.1.weight", view({6}, {1}, 6)}}));
  const auto checkpoint = file.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_THAT(values_of(*checkpoint, "head.part"), ElementsAre(0, 1, 2));
  const auto weights = find_weights(*checkpoint);
  ASSERT_TRUE(weights) << weights.error().to_string();
  // Blocks stream alone: each has its own copy.
  EXPECT_THAT(weights->aliases, ElementsAre(std::pair("head.weight", "embed.weight")));
  EXPECT_EQ(weights->weights.size(), 4U);
}

TEST(TorchCheckpoint, ReadsParametersAndOldCalls) {
  const std::string tensor = view({2}, {1}, 2).pickled();
  const std::string parameter =
      global("torch._utils", "_rebuild_parameter") + tuple(tensor + "\x88" + ordered_dict()) + "R";
  const std::string old = global("torch._utils", "_rebuild_tensor") +
                          tuple(storage("FloatStorage", "0", kStorageElements) + integer(5) +
                                numbers({2}) + numbers({1})) +
                          "R";
  const std::string items = text("parameter") + parameter + text("old") + old;
  const std::string metadata = dict(text("_metadata") + ordered_dict());
  const TorchFile file(TorchBuilder()
                           .root(ordered_dict() + "(" + items + "u" + metadata + "b")
                           .storage("0", counting_bytes()));
  const auto checkpoint = file.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_THAT(values_of(*checkpoint, "parameter"), ElementsAre(2, 3));
  EXPECT_THAT(values_of(*checkpoint, "old"), ElementsAre(5, 6));
}

/// A tensor of the form that torch keeps for its newer dtypes.
std::string untyped_tensor(const std::string& dtype, std::uint64_t count) {
  return global("torch._utils", "_rebuild_tensor_v3") +
         tuple(tuple(text("storage") + global("torch.storage", "UntypedStorage") + text("0") +
                     text("cpu") + integer(static_cast<std::int64_t>(4 * kStorageElements))) +
               "Q" + integer(8) + numbers({count}) + numbers({1}) + "\x89" + ordered_dict() +
               global("torch", dtype)) +
         "R";
}

TEST(TorchCheckpoint, ReadsFp8OfUntypedStorages) {
  const TorchFile file(TorchBuilder()
                           .root(dict(text("w") + untyped_tensor("float8_e4m3fn", 88)))
                           .storage("0", counting_bytes()));
  const auto checkpoint = file.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_EQ(checkpoint->tensors()[0].dtype, Dtype::kF8E4M3);
  std::string bytes(88, '\0');
  ASSERT_TRUE(checkpoint->read_tensor(0, std::as_writable_bytes(std::span(bytes))));
  EXPECT_EQ(bytes, counting_bytes().substr(8));
  EXPECT_EQ(TorchFile(TorchBuilder()
                          .root(dict(text("w") + untyped_tensor("float8_e4m3fn", 89)))
                          .storage("0", counting_bytes()))
                .error()
                .reason(),
            "offsets");
}

TEST(TorchCheckpoint, UnwrapsWhatTrainingProgramsSave) {
  const std::string weights = dict(text("layer") + dict(text("weight") + view({2}, {1}).pickled()));
  const std::string optimizer =
      dict(text("state") + dict(integer(0) + view({2}, {1}, 4).pickled()));
  const TorchFile file(TorchBuilder()
                           .root(dict(text("epoch") + integer(3) + text("state_dict") + weights +
                                      text("optimizer") + optimizer))
                           .storage("0", counting_bytes()));
  const auto checkpoint = file.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_THAT(stored_names(*checkpoint), ElementsAre("layer.weight"));
  ASSERT_EQ(checkpoint->notes().size(), 1U);
  EXPECT_THAT(checkpoint->notes()[0], HasSubstr("under \"state_dict\""));
  EXPECT_THAT(checkpoint->notes()[0],
              HasSubstr("left out with 1 tensors: \"epoch\", \"optimizer\""));
}

TEST(TorchCheckpoint, KeepsOtherDictsAsPartsOfNames) {
  const std::string part = dict(text("weight") + view({2}, {1}).pickled());
  const std::string list = "](" + view({1}, {1}, 3).pickled() + integer(5) + "e";
  const TorchFile file(
      TorchBuilder()
          .root(dict(text("unet") + part + text("vae") + list + text("step") + integer(7)))
          .storage("0", counting_bytes()));
  const auto checkpoint = file.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_THAT(stored_names(*checkpoint), ElementsAre("unet.weight", "vae.0"));
  EXPECT_THAT(checkpoint->notes(),
              ElementsAre("2 values that are no tensors are left out: \"vae.1\", \"step\""));
}

TEST(TorchCheckpoint, RefusesToGuessWhichWeightsAreMeant) {
  const std::string weights = dict(text("weight") + view({2}, {1}).pickled());
  const auto message = [&](const std::string& items) {
    const TorchFile file(TorchBuilder().root(dict(items)).storage("0", counting_bytes()));
    const Error error = file.error();
    return fmt::format("[{}] {}", error.reason(), error.message());
  };
  EXPECT_THAT(message(text("params") + weights + text("params_ema") + weights),
              HasSubstr("both under \"params\" and under \"params_ema\""));
  EXPECT_THAT(message(text("ema") + weights + text("state_dict") + weights),
              HasSubstr("both under \"state_dict\" and under \"ema\""));
  EXPECT_THAT(message(text("model") + weights + text("loose") + view({2}, {1}).pickled()),
              HasSubstr("[pickle]"));
  // A counter beside them is none.
  EXPECT_EQ(message(text("model") + weights + text("step") + view({1}, {1}).pickled()),
            "[] opened");
}

TEST(TorchCheckpoint, RefusesTensorsThatReachPastTheirStorage) {
  const auto refused = [](const PickledView& tensor) {
    const Error error = TorchFile(views({{"the.name", tensor}})).error();
    EXPECT_THAT(error.message(), HasSubstr("\"the.name\""));
    return std::string(error.reason());
  };
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 62;
  EXPECT_TRUE(TorchFile(views({{"fits", view({4, 6}, {6, 1})}})).open());
  EXPECT_EQ(refused(view({25}, {1})), "offsets");
  EXPECT_EQ(refused(view({24}, {1}, 1)), "offsets");
  EXPECT_EQ(refused(view({2}, {24})), "offsets");
  EXPECT_EQ(refused(view({2, 2}, {kHuge, kHuge})), "offsets");
  EXPECT_EQ(refused(view({3}, {kHuge}, kHuge)), "offsets");
  EXPECT_EQ(refused(view({kHuge, 8}, {0, 0})), "overflow");
  EXPECT_EQ(refused(view({1'000'000}, {0})), "overflow");
  EXPECT_EQ(refused(view({2, 2}, {1})), "schema");
  EXPECT_EQ(refused(view({~std::uint64_t{0}}, {1})), "schema");
  EXPECT_EQ(refused(view({2}, {~std::uint64_t{0}})), "schema");
  EXPECT_EQ(refused(view({2}, {1}, ~std::uint64_t{0})), "schema");
}

TEST(TorchCheckpoint, TakesEmptyAndSingleTensors) {
  const auto checkpoint = TorchFile(views({{"empty", view({0, 5}, {7, 9})},
                                           {"scalar", view({}, {}, 9)},
                                           {"ones", view({1, 1}, {77, 88}, 3)}}))
                              .open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_THAT(values_of(*checkpoint, "empty"), ElementsAre());
  EXPECT_THAT(values_of(*checkpoint, "scalar"), ElementsAre(9));
  EXPECT_THAT(values_of(*checkpoint, "ones"), ElementsAre(3));
}

TEST(TorchCheckpoint, ExecutesNothing) {
  const TempDir dir;
  const std::string evidence = (dir / "executed").string();
  const std::string call = global("posix", "system") + text("touch " + evidence) + "\x85R";
  const TorchFile file(TorchBuilder().root(dict(text("a") + call)));
  EXPECT_THAT(file.error().message(), HasSubstr("posix.system"));
  const TorchFile bare(whole(dict(text("a") + call)));
  EXPECT_THAT(bare.error().message(), HasSubstr("posix.system"));
  EXPECT_EQ(bare.error().reason(), "pickle");
  EXPECT_FALSE(std::filesystem::exists(evidence));
}

TEST(TorchCheckpoint, RefusesWhatItsArchiveLacks) {
  TorchBuilder sound = views({{"a", view({2}, {1})}});
  ZipBuilder compressed = sound.zip();
  compressed.entries()[2].method = 8;
  EXPECT_THAT(TorchFile(compressed.file()).error().message(), HasSubstr("is compressed"));
  ZipBuilder big = sound.zip();
  big.entries()[1].data = "big";
  EXPECT_THAT(TorchFile(big.file()).error().message(), HasSubstr("\"big\""));
  ZipBuilder shorter = sound.zip();
  shorter.entries()[2].data.pop_back();
  EXPECT_EQ(TorchFile(shorter.file()).error().reason(), "size_mismatch");
  ZipBuilder lacking = sound.zip();
  lacking.entries().erase(lacking.entries().begin() + 2);
  EXPECT_EQ(TorchFile(lacking.file()).error().reason(), "missing_tensor");
  ZipBuilder other;
  other.add("word/document.xml", "<x/>");
  EXPECT_THAT(TorchFile(other.file()).error().message(), HasSubstr("no data.pkl"));
  ZipBuilder script = sound.zip();
  script.add("archive/constants.pkl", "x");
  EXPECT_THAT(TorchFile(script.file()).error().message(), HasSubstr("TorchScript"));
  const std::string whole_file = sound.zip().file();
  EXPECT_EQ(TorchFile(whole_file.substr(0, whole_file.size() - 1)).error().reason(), "truncated");
}

TEST(TorchCheckpoint, RefusesNamesThatNoHeaderCanHold) {
  const std::string tensor = view({2}, {1}).pickled();
  const auto reason = [&](const std::string& items) {
    return std::string(TorchFile(TorchBuilder().root(dict(items)).storage("0", counting_bytes()))
                           .error()
                           .reason());
  };
  EXPECT_EQ(reason(text("a\xff") + tensor), "utf8");
  EXPECT_EQ(reason(text("__metadata__") + tensor), "pickle");
  EXPECT_EQ(reason(text("a.b") + tensor + text("a") + dict(text("b") + tensor)), "duplicate");
}

TEST(TorchCheckpoint, EndsCirclesAndDictsWithinDicts) {
  // A dict that holds itself.
  const std::string circle = "}" + std::string("q\0", 2) + text("a") + std::string("h\0", 2) + "s";
  EXPECT_THAT(TorchFile(TorchBuilder().root(circle)).error().message(), HasSubstr("nested"));
  // 30 dicts that each hold the next one twice: 2^30 paths.
  std::string twice = "}";
  for (int i = 0; i < 30; ++i) {
    const std::string put = {'q', static_cast<char>(i)};
    const std::string get = {'h', static_cast<char>(i)};
    twice.append(put).append("0").append(dict(text("a") + get + text("b") + get));
  }
  EXPECT_THAT(TorchFile(TorchBuilder().root(twice)).error().message(),
              HasSubstr("again and again"));
}

TEST(TorchCheckpoint, TakesMemoryInProportionToThePickleOnly) {
  const auto message = [](const std::string& root) {
    return TorchFile(TorchBuilder().root(root).storage("0", counting_bytes())).error().message();
  };
  const std::string tensor = view({2}, {1}).pickled() + std::string("q\0", 2);
  // One tensor under 2^12 names, by dicts that hold each other twice.
  std::string twice = tensor;
  for (int i = 0; i < 12; ++i) {
    const std::string get = {'h', static_cast<char>(i)};
    const std::string put = {'q', static_cast<char>(i + 1)};
    twice.append("0").append(dict(text("a") + get + text("b") + get)).append(put);
  }
  EXPECT_THAT(message(twice), HasSubstr("again and again"));
  // A long name before each of many.
  std::string many;
  for (int i = 0; i < 1000; ++i) {
    many += text(std::to_string(i)) + std::string("h\0", 2);
  }
  EXPECT_THAT(message(tensor + "0" + dict(text(std::string(4000, 'x')) + dict(many))),
              HasSubstr("names of its tensors"));
  EXPECT_THAT(message(dict(text(std::string(5000, 'x')) + tensor)), HasSubstr("longer than"));
  // One shape of many dimensions, used again and again.
  const std::vector<std::uint64_t> ones(65, 1);
  EXPECT_THAT(message(dict(text("a") + view(ones, ones).pickled())), HasSubstr("65 dimensions"));
}

TEST(TorchCheckpoint, ReadsTheFormatBeforeZip) {
  const TorchBuilder builder = views({{"a", view({2, 3}, {3, 1}, 1)}, {"t", view({2, 2}, {1, 2})}});
  const std::string bytes = builder.legacy(sizeof(float));
  const TorchFile file(bytes, "model.bin");
  const auto checkpoint = file.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_THAT(values_of(*checkpoint, "a"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(values_of(*checkpoint, "t"), ElementsAre(0, 2, 1, 3));
  for (std::size_t size = 20; size < bytes.size(); ++size) {
    EXPECT_EQ(TorchFile(bytes.substr(0, size), "model.bin").error().reason(), "truncated") << size;
  }
}

TEST(TorchCheckpoint, ReadsTheFormatBeforeZipInEveryProtocol) {
  const std::string bytes = views({{"a", view({2, 3}, {3, 1}, 1)}}).legacy(sizeof(float));
  const std::size_t magic_end = 15;
  ASSERT_EQ(bytes.substr(magic_end, 2), "\x80\x02");
  for (const char protocol : {'\3', '\4', '\5'}) {
    std::string other = std::string("\x80") + protocol;
    if (protocol >= '\4') {
      other += "\x95" + testing::little_endian(magic_end - 2, 8);
    }
    const TorchFile file(other + bytes.substr(2), "model.bin");
    const auto checkpoint = file.open();
    ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
    EXPECT_THAT(values_of(*checkpoint, "a"), ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_EQ(TorchFile(other, "model.bin").error().reason(), "truncated");
  }
}

TEST(TorchCheckpoint, TakesTheLastValueOfAKey) {
  const std::string once = view({2}, {1}).pickled();
  const std::string again = view({3}, {1}, 5).pickled();
  const auto open = [](const std::string& root) {
    return TorchFile(TorchBuilder().root(root).storage("0", counting_bytes())).open();
  };
  const auto replaced = open(dict(text("a") + once + text("b") + once) + text("a") + again + "s");
  ASSERT_TRUE(replaced) << replaced.error().to_string();
  EXPECT_THAT(values_of(*replaced, "a"), ElementsAre(5, 6, 7));
  EXPECT_THAT(values_of(*replaced, "b"), ElementsAre(0, 1));
  const auto gone = open(dict(text("a") + once + text("b") + once) + text("a") + "K\x01s");
  ASSERT_TRUE(gone) << gone.error().to_string();
  EXPECT_FALSE(gone->find("a"));
  EXPECT_THAT(values_of(*gone, "b"), ElementsAre(0, 1));
  const auto pairs = open(global("collections", "OrderedDict") + "(](](" + text("a") + once +
                          "e](" + text("a") + again + "eetR");
  ASSERT_TRUE(pairs) << pairs.error().to_string();
  EXPECT_THAT(values_of(*pairs, "a"), ElementsAre(5, 6, 7));
}

TEST(TorchCheckpoint, RefusesAStorageOfTwoTypes) {
  PickledView half = view({4}, {1});
  half.type = "HalfStorage";
  half.count = 2 * kStorageElements;
  const Error error = TorchFile(views({{"a", view({4}, {1})}, {"b", half}})).error();
  EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
  EXPECT_THAT(error.message(), HasSubstr("storage \"0\" as two types, HalfStorage"));
}

TEST(TorchCheckpoint, ReadsWithinTheFileWhateverByteIsWrong) {
  const TorchBuilder builder = views({{"a", view({2, 3}, {3, 1}, 1)}, {"t", view({2, 2}, {1, 2})}});
  int opened = 0;
  for (const std::string& sound : {builder.zip().file(), builder.legacy(sizeof(float))}) {
    for (std::size_t at = 0; at < sound.size(); ++at) {
      for (const int flip : {0x01, 0x80, 0xff}) {
        std::string bytes = sound;
        bytes[at] = static_cast<char>(bytes[at] ^ flip);
        const TorchFile file(bytes);
        const auto checkpoint = file.open();
        for (std::size_t i = 0; checkpoint && i < checkpoint->tensors().size(); ++i) {
          std::string target(checkpoint->tensors()[i].size_bytes, '\0');
          EXPECT_LE(target.size(), bytes.size());
          EXPECT_TRUE(checkpoint->read_tensor(i, std::as_writable_bytes(std::span(target)))) << at;
        }
        opened += checkpoint ? 1 : 0;
      }
    }
  }
  EXPECT_GT(opened, 0);  // Bytes of the data, names and padding.
}

TEST(TorchCheckpoint, IsNotServedUnderAnotherName) {
  const TorchBuilder builder = views({{"a", view({2}, {1})}});
  EXPECT_EQ(TorchFile(builder.zip().file(), "model.safetensors").error().reason(),
            "not_safetensors");
  EXPECT_TRUE(TorchFile(builder.zip().file(), "model.ckpt").open());
}

TEST(TorchCheckpoint, HasAFingerprintOfItsLayout) {
  const auto print = [](const TorchBuilder& builder) {
    return TorchFile(builder).open()->fingerprint();
  };
  const std::string first = print(views({{"a", view({2, 3}, {3, 1})}}));
  EXPECT_EQ(first, print(views({{"a", view({2, 3}, {3, 1})}})));
  EXPECT_NE(first, print(views({{"a", view({2, 3}, {1, 2})}})));
  EXPECT_NE(first, print(views({{"b", view({2, 3}, {3, 1})}})));
}

}  // namespace
}  // namespace trash_panda::format
