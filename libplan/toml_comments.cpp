#include "toml_comments.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "toml_keys.h"

namespace trash_panda::plan {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kBlank), text.size());
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

/// A table header or a key with its value, and the comments that belong to it.
struct TomlStatement {
  std::string place;  ///< What it is, the same in every version of the document.
  std::vector<std::string_view> before;
  std::string_view beside;
  std::size_t block_begin = 0;  ///< Of the first comment before it.
  std::size_t begin = 0;        ///< Of its own line.
  std::size_t end = 0;          ///< Behind its comment, before the end of the line.
};

struct CommentedDocument {
  std::vector<TomlStatement> statements;
  std::vector<std::string_view> last;  ///< Comments behind the last statement.
};

class CommentScanner {
 public:
  explicit CommentScanner(std::string_view text) : text_(text) {}

  CommentedDocument scan() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n' || kBlank.contains(c)) {
        ++at_;
      } else if (c == '#') {
        open_block();
        document_.last.push_back(comment());
      } else {
        statement();
      }
    }
    return std::move(document_);
  }

 private:
  void open_block() {
    if (document_.last.empty()) {
      block_begin_ = at_;
    }
  }

  std::string_view comment() {
    const std::size_t begin = at_;
    at_ = std::min(text_.find('\n', begin), text_.size());
    return trimmed(text_.substr(begin, at_ - begin));
  }

  /// One header or key, up to the end of its line or, for arrays over several, its last line.
  void statement() {
    open_block();
    TomlStatement found{.place = {},
                        .before = {},
                        .beside = {},
                        .block_begin = block_begin_,
                        .begin = at_,
                        .end = 0};
    const bool is_header = text_[at_] == '[';
    std::size_t equals = std::string_view::npos;
    std::size_t content_end = at_;
    for (int depth = 0; at_ < text_.size() && (text_[at_] != '\n' || depth > 0);) {
      const char c = text_[at_];
      if (c == '#') {
        (depth > 0 ? document_.last.emplace_back() : found.beside) = comment();
        continue;
      }
      if (c == '=' && equals == std::string_view::npos) {
        equals = at_;
      }
      depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
      at_ = c == '"' || c == '\'' ? end_of_toml_string(text_, at_) : at_ + 1;
      content_end = at_;
    }
    at_ = std::min(at_, text_.size());
    const std::string_view content =
        trimmed(text_.substr(found.begin, std::min(content_end, text_.size()) - found.begin));
    found.end = static_cast<std::size_t>(content.end() - text_.begin());
    if (!found.beside.empty()) {
      found.end = static_cast<std::size_t>(found.beside.end() - text_.begin());
    }
    if (is_header) {
      enter(content);
      found.place = table_;
    } else {
      const std::string_view key = trimmed(text_.substr(found.begin, equals - found.begin));
      if (key == "name" && is_in_array_) {
        name_table(trimmed(text_.substr(equals + 1, content_end - equals - 1)));
      }
      found.place = table_ + "\n" + std::string(key);
    }
    found.before = std::exchange(document_.last, {});
    document_.statements.push_back(std::move(found));
  }

  void enter(std::string_view header) {
    is_in_array_ = header.starts_with("[[");
    table_begin_ = document_.statements.size();
    // Until its name is known, a table of an array has the place of none other.
    table_ = std::string(header) + (is_in_array_ ? "\n" + std::to_string(table_begin_) : "");
  }

  /// Gives the tables of an array, and what of them was read, a place by name.
  void name_table(std::string_view name) {
    const std::string named = "[[]]\n" + std::string(name);
    for (std::size_t index = table_begin_; index < document_.statements.size(); ++index) {
      std::string& place = document_.statements[index].place;
      place.replace(0, table_.size(), named);
    }
    table_ = named;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t block_begin_ = 0;
  std::string table_;
  std::size_t table_begin_ = 0;
  bool is_in_array_ = false;
  CommentedDocument document_;
};

/// Length of the amount that the writer puts behind a number, "# 3.00 kB" or "# 400 MB/s"; 0
/// without one.
std::size_t amount_length(std::string_view comment) {
  const std::size_t digits_end = comment.find_first_not_of("0123456789.", 2);
  if (!comment.starts_with("# ") || digits_end == 2 || digits_end >= comment.size() ||
      comment[digits_end] != ' ') {
    return 0;
  }
  std::size_t end = digits_end + 1;
  end += end < comment.size() && std::string_view("kMGTPE").contains(comment[end]) ? 1U : 0U;
  if (end >= comment.size() || comment[end] != 'B') {
    return 0;
  }
  ++end;
  end += comment.substr(end).starts_with("/s") ? 2U : 0U;
  return end == comment.size() || kBlank.contains(comment[end]) ? end : 0;
}

/// What of a comment behind a value is the user's.
std::string user_part(std::string_view comment) {
  std::string rest(comment);
  for (std::size_t length = amount_length(rest); length > 0; length = amount_length(rest)) {
    rest = trimmed(std::string_view(rest).substr(length));
    if (!rest.empty() && !rest.starts_with('#')) {
      rest.insert(0, "# ");
    }
  }
  return rest;
}

class CommentKeeper {
 public:
  CommentKeeper(std::string_view written, std::span<const std::string_view> remarks)
      : written_(written), remarks_(remarks), document_(CommentScanner(written).scan()) {
    for (std::size_t index = 0; index < document_.statements.size(); ++index) {
      places_.emplace(document_.statements[index].place, index);
    }
  }

  std::string keep(const CommentedDocument& commented) {
    for (const TomlStatement& statement : commented.statements) {
      const auto place = places_.find(statement.place);
      const std::string beside = user_part(statement.beside);
      if (place == places_.end()) {
        add_lines(statement.before, last_, last_);
        last_ += beside.empty() ? "" : beside + "\n";
        continue;
      }
      const TomlStatement& target = document_.statements[place->second];
      add_lines(statement.before, inserts_[target.block_begin], inserts_[target.begin]);
      inserts_[target.end] += beside.empty() ? "" : "  " + beside;
    }
    add_lines(commented.last, last_, last_);
    std::string text;
    std::size_t copied = 0;
    for (const auto& [at, insert] : inserts_) {
      text += written_.substr(copied, at - copied);
      text += insert;
      copied = at;
    }
    text += written_.substr(copied);
    return text + last_;
  }

 private:
  /// What stands before a remark of the writer's stays before it.
  void add_lines(const std::vector<std::string_view>& comments, std::string& before_remarks,
                 std::string& behind_remarks) {
    std::string* target = &before_remarks;
    const auto is_remark = [this](std::string_view comment) {
      return std::ranges::find(remarks_, comment) != remarks_.end();
    };
    if (std::ranges::none_of(comments, is_remark)) {
      target = &behind_remarks;
    }
    for (const std::string_view comment : comments) {
      if (is_remark(comment)) {
        target = &behind_remarks;
        continue;
      }
      *target += comment;
      *target += '\n';
    }
  }

  std::string_view written_;
  std::span<const std::string_view> remarks_;
  CommentedDocument document_;
  std::map<std::string, std::size_t, std::less<>> places_;
  std::map<std::size_t, std::string> inserts_;  ///< By offset in `written_`.
  std::string last_;
};

}  // namespace

std::string keep_toml_comments(std::string_view commented, std::string_view written,
                               std::span<const std::string_view> remarks) {
  return CommentKeeper(written, remarks).keep(CommentScanner(commented).scan());
}

}  // namespace trash_panda::plan
