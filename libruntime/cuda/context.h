#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "trash_panda/base/error.h"

#include "cuda/driver.h"

namespace trash_panda::runtime::cuda {

/// The primary context of a GPU, held as long as this lives. Every call enters it and leaves it
/// again, so that the caller's context stays current, and works on any thread.
class PrimaryContext {
 public:
  /// @param ordinal  Among the devices that the driver shows.
  /// @retval kDevice  There is no such GPU, or the driver refuses.
  static Result<std::shared_ptr<PrimaryContext>> open(Driver driver, int ordinal);
  explicit PrimaryContext(Driver driver) : driver_(std::move(driver)) {}
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  ~PrimaryContext();

  /// "NVIDIA H200".
  [[nodiscard]] const std::string& name() const { return name_; }

  /// Calls a function of the driver.
  /// @return Its status; kSuccess is 0.
  template <class... Parameters, class... Arguments>
  Status call(Status (*Functions::*function)(Parameters...), Arguments... arguments) const {
    const Functions& cuda = driver_.functions();
    Status status = enter();
    if (status == kSuccess) {
      status = (cuda.*function)(arguments...);
      Context popped = nullptr;
      static_cast<void>(cuda.CtxPopCurrent_v2(&popped));
    }
    return status;
  }

  /// The same with an error that says what was tried.
  /// @retval kDoesNotFit  The driver is out of memory.
  /// @retval kDevice      Any other error.
  template <class... Parameters, class... Arguments>
  Result<void> check(const char* what, Status (*Functions::*function)(Parameters...),
                     Arguments... arguments) const {
    const Status status = call(function, arguments...);
    return status == kSuccess ? Result<void>() : std::unexpected(error(what, status));
  }
  [[nodiscard]] Error error(const char* what, Status status) const;

 private:
  /// Makes the context current.
  [[nodiscard]] Status enter() const;

  Driver driver_;
  Device device_ = 0;
  Context context_ = nullptr;
  bool is_retained_ = false;
  std::string name_ = "GPU";
};

}  // namespace trash_panda::runtime::cuda
