#include "cuda/context.h"

#include <array>

#include <fmt/format.h>

namespace trash_panda::runtime::cuda {

Result<std::shared_ptr<PrimaryContext>> PrimaryContext::open(Driver driver, int ordinal) {
  const auto opened = std::make_shared<PrimaryContext>(std::move(driver));
  const Functions& cuda = opened->driver_.functions();
  if (const Status status = cuda.DeviceGet(&opened->device_, ordinal); status != kSuccess) {
    return std::unexpected(Error(ErrorCode::kDevice, fmt::format("there is no GPU {}: {}", ordinal,
                                                                 opened->driver_.describe(status)))
                               .with_hint("CUDA_VISIBLE_DEVICES says which GPUs are shown"));
  }
  std::array<char, 256> name = {};
  if (cuda.DeviceGetName(name.data(), static_cast<int>(name.size()) - 1, opened->device_) ==
      kSuccess) {
    opened->name_ = name.data();
  }
  if (const Status status = cuda.DevicePrimaryCtxRetain(&opened->context_, opened->device_);
      status != kSuccess) {
    return std::unexpected(opened->error("entering its context", status));
  }
  opened->is_retained_ = true;
  return opened;
}

PrimaryContext::~PrimaryContext() {
  if (is_retained_) {
    static_cast<void>(driver_.functions().DevicePrimaryCtxRelease_v2(device_));
  }
}

Status PrimaryContext::enter() const {
  const Status status = driver_.functions().CtxPushCurrent_v2(context_);
  // Once more, as the error may be of earlier work, and what gives something back must not be left.
  return status == kSuccess ? status : driver_.functions().CtxPushCurrent_v2(context_);
}

Error PrimaryContext::error(const char* what, Status status) const {
  return {status == kOutOfMemory ? ErrorCode::kDoesNotFit : ErrorCode::kDevice,
          fmt::format("{}: {}: {}", name_, what, driver_.describe(status))};
}

}  // namespace trash_panda::runtime::cuda
