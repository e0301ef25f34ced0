#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

/// The tokenizer of uncased BERT models, for ASCII text.
class WordPieces {
 public:
  /// @param path  vocab.txt, a piece a line. Throws std::runtime_error when it can't be read.
  explicit WordPieces(const std::string& path);

  /// Numbers of the sentence's pieces, between those of [CLS] and [SEP]. Throws
  /// std::invalid_argument when it is not ASCII.
  [[nodiscard]] std::vector<std::int64_t> encode(const std::string& sentence) const;
  [[nodiscard]] std::int64_t padding() const { return numbers_.at("[PAD]"); }

 private:
  void add_word(const std::string& word, std::vector<std::int64_t>& pieces) const;

  std::unordered_map<std::string, std::int64_t> numbers_;
};
