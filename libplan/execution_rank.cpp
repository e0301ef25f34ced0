#include "execution_rank.h"

#include <array>
#include <cstddef>

namespace trash_panda::plan {
namespace {

struct RankedWord {
  std::string_view word;
  int rank;
};

/// Stages of the models that people run, by the words of their names.
constexpr std::array kRankedWords{
    // What prepares the input: conditioning, embedders, refiners of it.
    RankedWord{"conditioner", -3},
    RankedWord{"cond", -3},
    RankedWord{"text", -3},
    RankedWord{"vision", -2},
    RankedWord{"visual", -2},
    RankedWord{"audio", -2},
    RankedWord{"embedder", -2},
    RankedWord{"embeddings", -2},
    RankedWord{"refiner", -2},
    // First half, middle, second half.
    RankedWord{"encoder", -1},
    RankedWord{"down", -1},
    RankedWord{"input", -1},
    RankedWord{"double", -1},
    RankedWord{"mid", 1},
    RankedWord{"middle", 1},
    RankedWord{"decoder", 2},
    RankedWord{"up", 2},
    RankedWord{"output", 2},
    RankedWord{"single", 2},
    // What takes the result.
    RankedWord{"vae", 3},
    RankedWord{"first", 3},
};

int word_rank(std::string_view word) {
  for (const RankedWord& ranked : kRankedWords) {
    if (ranked.word == word) {
      return ranked.rank;
    }
  }
  return 0;
}

}  // namespace

int execution_rank(std::string_view component) {
  // The first word that has a rank decides: "text_encoder" is text, "first_stage_model" first.
  while (!component.empty()) {
    const std::size_t end = component.find('_');
    const int rank = word_rank(component.substr(0, end));
    if (rank != 0 || end == std::string_view::npos) {
      return rank;
    }
    component.remove_prefix(end + 1);
  }
  return 0;
}

}  // namespace trash_panda::plan
