// Prints the norm of every weight in a pack's blocks.

#include <iostream>

#include "trash_panda/torch/block_stream.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: norms MODEL.panda\n";
    return 2;
  }
  auto stream = trash_panda::torch::BlockStream::open(argv[1]);
  if (!stream) {
    std::cerr << stream.error().to_string() << '\n';
    return 1;
  }
  for (auto& block : stream->pass()) {
    auto lease = block.acquire();  // Waits until the block is in memory; the next ones are read.
    if (!lease) {
      std::cerr << lease.error().to_string() << '\n';
      return 1;
    }
    for (const auto name : lease->names()) {
      const at::Tensor weight = lease->tensor(name);
      std::cout << name << ": " << weight.to(at::kDouble).norm().item<double>() << '\n';
    }
  }  // The block's memory goes to another one.
  return 0;
}
