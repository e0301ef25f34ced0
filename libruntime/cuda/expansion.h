#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/runtime/streamer.h"

#include "cuda/context.h"
#include "cuda/expand_kernel.h"
#include "tensor_layout.h"

namespace trash_panda::runtime::cuda {

/// The kernels that make tensors of stored weights, loaded into a context.
///
/// A code that turns out to be damaged while it is decoded is only known once the kernel has run:
/// every place() and check_decoded() after that fails.
class Expansion {
 public:
  /// @retval kDevice  This program was built without kernels, or the driver does not take them.
  static Result<std::unique_ptr<Expansion>> load(std::shared_ptr<PrimaryContext> context);
  explicit Expansion(std::shared_ptr<PrimaryContext> context) : context_(std::move(context)) {}
  Expansion(const Expansion&) = delete;
  Expansion& operator=(const Expansion&) = delete;
  ~Expansion();

  /// @see Device::check_decoded()
  [[nodiscard]] Result<void> check_decoded() const;
  /// @see Device::place()
  Result<std::vector<TensorView>> place(const TensorLayout& layout, std::span<std::byte> stored,
                                        std::span<std::byte> compute, Stream stream) const;

 private:
  Result<void> make_tensor(const TensorStep& step, const TensorLayout& layout,
                           std::span<std::byte> stored, std::span<std::byte> compute,
                           Stream stream) const;
  Result<void> expand(const TensorStep& step, std::span<const std::byte> payload,
                      std::span<std::byte> stored, std::span<std::byte> target,
                      Stream stream) const;
  Result<void> decode(const TensorStep& step, format::Dtype dtype, const TensorLayout& layout,
                      std::span<std::byte> stored, std::span<std::byte> target,
                      Stream stream) const;
  template <class Arguments>
  Result<void> launch(const char* what, Function kernel, std::uint64_t thread_count,
                      Arguments arguments, Stream stream) const;

  /// By stored and made dtype.
  using Kernels = std::map<std::pair<format::Dtype, format::Dtype>, Function>;

  std::shared_ptr<PrimaryContext> context_;
  Module module_ = nullptr;
  Kernels expanders_;
  Kernels decoders_;
  std::uint32_t* damaged_ = nullptr;  ///< In host memory; 1 once a decoder has found damage.
};

}  // namespace trash_panda::runtime::cuda
