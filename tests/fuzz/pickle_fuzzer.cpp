// A pickle of torch.save().

#include <span>

#include "fuzz_target.h"
#include "torch_check.h"
#include "torch_state.h"

namespace trash_panda::fuzz {

namespace {

bool fuzz_pickle(std::string_view input) {
  const auto bytes = std::as_bytes(std::span(input));
  const Result<format::TorchState> state = format::parse_torch_pickle(bytes);
  if (!state) {
    check_refusal(state.error());
    return false;
  }
  check_torch_state(*state);
  // What is behind the end of the pickle does not matter.
  TP_ASSERT(state->pickle_bytes <= bytes.size());
  const auto again = format::parse_torch_pickle(bytes.first(state->pickle_bytes));
  TP_ASSERT(again && again->tensors.size() == state->tensors.size());
  return true;
}

[[maybe_unused]] const bool kPickleAdded = add_target("pickle", fuzz_pickle);

}  // namespace

}  // namespace trash_panda::fuzz
