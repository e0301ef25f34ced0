#include "trash_panda/format/text_arena.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace trash_panda::format {
namespace {

/// Texts of many lengths, a few longer than a piece of memory.
std::vector<std::string> many_texts() {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < 2000; ++i) {
    texts.push_back(fmt::format("model.layers.{}.{}", i, std::string(i % 97, 'x')));
  }
  texts.emplace_back();
  texts.emplace_back(3'000'000, 'l');
  texts.emplace_back("a\0b", 3);
  return texts;
}

TEST(TextArena, KeepsTextsAlsoWhenItIsMoved) {
  const std::vector<std::string> texts = many_texts();
  TextArena arena;
  std::vector<std::string_view> kept;
  for (const std::string& text : texts) {
    kept.push_back(arena.keep(std::string(text)));
  }
  TextArena moved = std::move(arena);
  arena = TextArena();
  kept.push_back(moved.keep("one more"));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(kept[i], texts[i]);
  }
  EXPECT_EQ(kept.back(), "one more");
}

TEST(TextArena, TakesOverWhatAnotherKeeps) {
  TextArena arena;
  const std::string_view first = arena.keep("first");
  TextArena other;
  other.reserve(11);
  const std::string_view second = other.keep("second");
  arena.take(std::move(other));
  arena.take(TextArena());
  const std::string_view third = arena.keep("third");
  const std::string_view fourth = arena.keep("fourth");
  EXPECT_EQ(third.data(), second.data() + second.size());  // Where room was made.
  EXPECT_EQ(fmt::format("{} {} {} {}", first, second, third, fourth), "first second third fourth");
}

}  // namespace
}  // namespace trash_panda::format
