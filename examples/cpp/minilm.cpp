// Embeds sentences with all-MiniLM-L6-v2, whose layers stream from a pack while they are computed:
//
//     minilm minilm.panda vocab.txt embeddings.f32 "A panda eats." "The bear has breakfast."
//
// writes 384 floats a sentence and prints how much each sentence is like the first. The operations
// are those of transformers' BertModel in PyTorch, so the embeddings are the same, bit for bit.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include "trash_panda/torch/block_stream.h"

#include "word_pieces.h"

namespace {

using trash_panda::torch::BlockLease;
using trash_panda::torch::BlockStream;

// Of the model's config.json; what else there is shows in the shapes of its weights.
constexpr std::int64_t kHeads = 12;
constexpr double kNormEpsilon = 1e-12;

/// Sentences as the numbers of their pieces, all as long as the longest.
struct Batch {
  at::Tensor pieces;  // [sentences, length]
  at::Tensor mask;    // The same; 1 where there is a piece, 0 where there is padding.
};

Batch make_batch(const WordPieces& word_pieces, const std::vector<std::string>& sentences) {
  std::vector<std::vector<std::int64_t>> rows;
  std::size_t length = 0;
  for (const std::string& sentence : sentences) {
    rows.push_back(word_pieces.encode(sentence));
    length = std::max(length, rows.back().size());
  }
  std::vector<std::int64_t> pieces;
  std::vector<std::int64_t> mask;
  for (std::vector<std::int64_t>& row : rows) {
    for (std::size_t at = 0; at < length; ++at) {
      mask.push_back(at < row.size() ? 1 : 0);
    }
    row.resize(length, word_pieces.padding());
    pieces.insert(pieces.end(), row.begin(), row.end());
  }
  const auto count = static_cast<std::int64_t>(sentences.size());
  return {at::tensor(pieces).view({count, -1}), at::tensor(mask).view({count, -1})};
}

/// Weights under a name of the model: of a block that is lent, or outside blocks.
template <class Weights>
at::Tensor linear(const Weights& weights, const std::string& name, const at::Tensor& input) {
  return at::linear(input, weights.tensor(name + ".weight"), weights.tensor(name + ".bias"));
}

template <class Weights>
at::Tensor layer_norm(const Weights& weights, const std::string& name, const at::Tensor& input) {
  return at::layer_norm(input, {input.size(-1)}, weights.tensor(name + ".weight"),
                        weights.tensor(name + ".bias"), kNormEpsilon);
}

at::Tensor embed_pieces(const BlockStream& model, const Batch& batch) {
  const at::Tensor words =
      at::embedding(model.tensor("embeddings.word_embeddings.weight"), batch.pieces);
  // Every piece belongs to the first of BERT's two kinds of sentences.
  const at::Tensor kind = model.tensor("embeddings.token_type_embeddings.weight").select(0, 0);
  const at::Tensor places =
      model.tensor("embeddings.position_embeddings.weight").narrow(0, 0, batch.pieces.size(1));
  return layer_norm(model, "embeddings.LayerNorm", words.add(kind).add(places));
}

at::Tensor attend(const BlockLease& layer, const at::Tensor& hidden,
                  const std::optional<at::Tensor>& mask) {
  const std::int64_t head_size = hidden.size(2) / kHeads;
  const auto heads = [&](const std::string& name) {
    return linear(layer, "attention.self." + name, hidden)
        .view({hidden.size(0), hidden.size(1), kHeads, head_size})
        .transpose(1, 2);
  };
  const at::Tensor query = heads("query");
  const at::Tensor key = heads("key");
  const at::Tensor value = heads("value");
  const double scale = 1 / std::sqrt(static_cast<double>(head_size));
  return at::scaled_dot_product_attention(query, key, value, mask, /*dropout_p=*/0,
                                          /*is_causal=*/false, scale)
      .transpose(1, 2)
      .contiguous()
      .view(hidden.sizes());
}

at::Tensor run_layer(const BlockLease& layer, const at::Tensor& hidden,
                     const std::optional<at::Tensor>& mask) {
  const at::Tensor attended =
      layer_norm(layer, "attention.output.LayerNorm",
                 linear(layer, "attention.output.dense", attend(layer, hidden, mask)).add(hidden));
  const at::Tensor wide = at::gelu(linear(layer, "intermediate.dense", attended));
  return layer_norm(layer, "output.LayerNorm", linear(layer, "output.dense", wide).add(attended));
}

/// Mean of each sentence's pieces, of length 1.
at::Tensor pool(const at::Tensor& hidden, const at::Tensor& mask) {
  const at::Tensor column = mask.unsqueeze(-1);
  const at::Tensor mean = hidden.mul(column).sum({1}).div(column.sum({1}));
  return mean.div(at::linalg_vector_norm(mean, 2, {1}, /*keepdim=*/true).clamp_min(1e-12));
}

trash_panda::Result<at::Tensor> embed(BlockStream& model, const Batch& batch) {
  std::optional<at::Tensor> mask;  // Of who attends to whom; none without padding.
  if (!batch.mask.all().item<bool>()) {
    const std::int64_t length = batch.mask.size(1);
    mask = batch.mask.to(at::kBool).view({-1, 1, 1, length}).expand({-1, 1, length, length});
  }
  at::Tensor hidden = embed_pieces(model, batch);
  for (auto& block : model.pass()) {
    auto layer = block.acquire();
    if (!layer) {
      return std::unexpected(layer.error());
    }
    hidden = run_layer(*layer, hidden, mask);
  }
  return pool(hidden, batch.mask);
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 4) {
    std::cerr << "usage: minilm MODEL.panda VOCAB.txt OUTPUT.f32 SENTENCE...\n";
    return 2;
  }
  const std::vector<std::string> sentences(arguments.begin() + 3, arguments.end());
  const Batch batch = make_batch(WordPieces(arguments[1]), sentences);
  const c10::InferenceMode inference;

  auto model = BlockStream::open(arguments[0]);
  if (!model) {
    std::cerr << "minilm: " << model.error().to_string() << '\n';
    return 1;
  }
  const trash_panda::Result<at::Tensor> embeddings = embed(*model, batch);
  if (!embeddings) {
    std::cerr << "minilm: " << embeddings.error().to_string() << '\n';
    return 1;
  }

  std::ofstream output(arguments[2], std::ios::binary);
  output.write(static_cast<const char*>(embeddings->const_data_ptr()),
               static_cast<std::streamsize>(embeddings->nbytes()));
  if (!output.flush()) {
    std::cerr << "minilm: can't write " << arguments[2] << '\n';
    return 1;
  }
  const at::Tensor likeness = embeddings->matmul(embeddings->select(0, 0));
  std::cout << std::fixed << std::setprecision(2);
  for (std::size_t at = 0; at < sentences.size(); ++at) {
    std::cout << likeness.select(0, static_cast<std::int64_t>(at)).item<float>() << "  "
              << sentences[at] << '\n';
  }
  const auto stats = model->streamer().stats();
  std::cout << "read " << stats.pass_read_bytes_disk / 1'000'000 << " MB of layers from disk, "
            << stats.weight_memory_bytes_max / 1'000'000 << " MB of weights in memory at most\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "minilm: " << error.what() << '\n';
    return 1;
  }
}
