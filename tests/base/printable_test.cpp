#include "trash_panda/base/printable.h"

#include <gtest/gtest.h>

namespace trash_panda {
namespace {

TEST(Printable, EscapesControlBytes) {
  EXPECT_EQ(printable("a\nb\x1b[31m\x7f"), "a\\x0ab\\x1b[31m\\x7f");
}

TEST(Printable, EscapesWhatTurnsOrBreaksALineInUtf8) {
  EXPECT_EQ(printable("a\u202eb"), "a\\u202eb");
  EXPECT_EQ(printable("\u200e\u200f\u2028\u2029\u202a\u2066\u2069\u061c"),
            "\\u200e\\u200f\\u2028\\u2029\\u202a\\u2066\\u2069\\u061c");
  EXPECT_EQ(printable("\u0080\u009b"), "\\u0080\\u009b");
}

TEST(Printable, KeepsAllOtherText) {
  for (const char* text : {"", "plain", "Größe", "ключ", "…—“", "\u200d\u2027\u202f\u2065\u206a",
                           "\u00a0", "\xe2", "\xe2\x80", "\xc2", "\xff"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Excerpt, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(excerpt(std::string(200, 'a')), std::string(200, 'a'));
  EXPECT_EQ(excerpt(std::string(201, 'a')), std::string(200, 'a') + "… (201 bytes)");
  EXPECT_EQ(excerpt(std::string(199, 'a') + "ü"), std::string(199, 'a') + "… (201 bytes)");
  EXPECT_EQ(excerpt("a\nb"), "a\\x0ab");
}

}  // namespace
}  // namespace trash_panda
