#include "trash_panda/format/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "trash_panda/base/error.h"

namespace trash_panda::format {

namespace {

std::string to_hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

struct Checksum::State {
  std::unique_ptr<XXH3_state_t, FreeState> xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  state_->xxh3.reset(XXH3_createState());
  TP_ASSERT(state_->xxh3 != nullptr);
  XXH3_128bits_reset(state_->xxh3.get());
}

Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh3.get(), bytes.data(), bytes.size());
}

std::string Checksum::hex() const {
  return to_hex(XXH3_128bits_digest(state_->xxh3.get()));
}

std::string checksum_hex(std::span<const std::byte> bytes) {
  return to_hex(XXH3_128bits(bytes.data(), bytes.size()));
}

}  // namespace trash_panda::format
