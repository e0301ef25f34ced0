// Streams a pack in a project of its own; exit 0 when every block had tensors.

#include <iostream>

#include "trash_panda/runtime/streamer.h"

int main(int, char** argv) {
  auto streamer = trash_panda::runtime::Streamer::open(argv[1], {});
  if (!streamer) {
    std::cerr << streamer.error().to_string() << '\n';
    return 1;
  }
  for (std::size_t index = 0; index < streamer->block_count(); ++index) {
    const auto lease = streamer->acquire(index);
    if (!lease || lease->tensors().empty()) {
      std::cerr << "block " << index << " can't be read\n";
      return 1;
    }
    std::cout << streamer->block(index).name << ": " << lease->tensors().size() << " tensors\n";
  }
  return streamer->block_count() > 0 ? 0 : 1;
}
