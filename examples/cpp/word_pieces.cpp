#include "word_pieces.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <stdexcept>

WordPieces::WordPieces(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  for (std::string piece; std::getline(file, piece);) {
    numbers_.emplace(piece, number++);
  }
  if (!numbers_.contains("[UNK]")) {
    throw std::runtime_error("can't read pieces of words from " + path);
  }
}

std::vector<std::int64_t> WordPieces::encode(const std::string& sentence) const {
  std::vector<std::int64_t> pieces = {numbers_.at("[CLS]")};
  std::string word;
  for (const unsigned char c : sentence + ' ') {
    if (c > 127) {
      throw std::invalid_argument("this tokenizer knows ASCII only: " + sentence);
    }
    if (std::isalnum(c) != 0) {
      word += static_cast<char>(std::tolower(c));
      continue;
    }
    add_word(word, pieces);
    word.clear();
    if (std::ispunct(c) != 0) {  // A word of its own.
      add_word(std::string(1, static_cast<char>(c)), pieces);
    }
  }
  pieces.push_back(numbers_.at("[SEP]"));
  return pieces;
}

/// The longest known piece that the word begins with, then that of the rest; a word that can't be
/// put together so is unknown as a whole.
void WordPieces::add_word(const std::string& word, std::vector<std::int64_t>& pieces) const {
  constexpr std::size_t kLettersMax = 100;  // As BERT's own tokenizer: longer words are unknown.
  std::vector<std::int64_t> found;
  for (std::size_t begin = 0; begin < word.size();) {
    std::size_t length = word.size() > kLettersMax ? 0 : word.size() - begin;
    auto piece = numbers_.end();
    for (; length > 0 && piece == numbers_.end(); --length) {
      piece = numbers_.find((begin > 0 ? "##" : "") + word.substr(begin, length));
    }
    if (piece == numbers_.end()) {
      pieces.push_back(numbers_.at("[UNK]"));
      return;
    }
    found.push_back(piece->second);
    begin += piece->first.size() - (begin > 0 ? 2 : 0);
  }
  pieces.insert(pieces.end(), found.begin(), found.end());
}
