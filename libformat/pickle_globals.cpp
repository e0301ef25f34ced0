#include "pickle_globals.h"

#include <algorithm>
#include <array>

namespace trash_panda::format {

namespace {

using enum PickleGlobalKind;

constexpr std::string_view kTorch = "torch";

// What torch.save() writes of tensors, parameters and the dicts that hold them. Nothing here is
// ever called: the machine knows what each one would make.
// @see torch 2.11: _utils.py, storage.py (_dtype_to_storage_type_map, _new_dtypes)
constexpr std::array kGlobals = {
    PickleGlobal{"collections", "OrderedDict", kOrderedDict, {}},
    PickleGlobal{"torch._utils", "_rebuild_tensor", kRebuildTensor, {}},
    PickleGlobal{"torch._utils", "_rebuild_tensor_v2", kRebuildTensorV2, {}},
    PickleGlobal{"torch._utils", "_rebuild_tensor_v3", kRebuildTensorV3, {}},
    PickleGlobal{"torch._utils", "_rebuild_parameter", kRebuildParameter, {}},
    PickleGlobal{"torch._utils", "_rebuild_parameter_with_state", kRebuildParameterWithState, {}},
    PickleGlobal{kTorch, "Size", kSize, {}},
    PickleGlobal{kTorch, "BoolStorage", kStorageType, Dtype::kBool},
    PickleGlobal{kTorch, "ByteStorage", kStorageType, Dtype::kU8},
    PickleGlobal{kTorch, "CharStorage", kStorageType, Dtype::kI8},
    PickleGlobal{kTorch, "ShortStorage", kStorageType, Dtype::kI16},
    PickleGlobal{kTorch, "IntStorage", kStorageType, Dtype::kI32},
    PickleGlobal{kTorch, "LongStorage", kStorageType, Dtype::kI64},
    PickleGlobal{kTorch, "HalfStorage", kStorageType, Dtype::kF16},
    PickleGlobal{kTorch, "BFloat16Storage", kStorageType, Dtype::kBf16},
    PickleGlobal{kTorch, "FloatStorage", kStorageType, Dtype::kF32},
    PickleGlobal{kTorch, "DoubleStorage", kStorageType, Dtype::kF64},
    PickleGlobal{kTorch, "ComplexFloatStorage", kStorageType, Dtype::kC64},
    PickleGlobal{kTorch, "UntypedStorage", kUntypedStorageType, {}},
    PickleGlobal{"torch.storage", "UntypedStorage", kUntypedStorageType, {}},
    PickleGlobal{kTorch, "bool", kDtype, Dtype::kBool},
    PickleGlobal{kTorch, "uint8", kDtype, Dtype::kU8},
    PickleGlobal{kTorch, "int8", kDtype, Dtype::kI8},
    PickleGlobal{kTorch, "int16", kDtype, Dtype::kI16},
    PickleGlobal{kTorch, "uint16", kDtype, Dtype::kU16},
    PickleGlobal{kTorch, "int32", kDtype, Dtype::kI32},
    PickleGlobal{kTorch, "uint32", kDtype, Dtype::kU32},
    PickleGlobal{kTorch, "int64", kDtype, Dtype::kI64},
    PickleGlobal{kTorch, "uint64", kDtype, Dtype::kU64},
    PickleGlobal{kTorch, "float16", kDtype, Dtype::kF16},
    PickleGlobal{kTorch, "bfloat16", kDtype, Dtype::kBf16},
    PickleGlobal{kTorch, "float32", kDtype, Dtype::kF32},
    PickleGlobal{kTorch, "float64", kDtype, Dtype::kF64},
    PickleGlobal{kTorch, "complex64", kDtype, Dtype::kC64},
    PickleGlobal{kTorch, "float8_e4m3fn", kDtype, Dtype::kF8E4M3},
    PickleGlobal{kTorch, "float8_e5m2", kDtype, Dtype::kF8E5M2},
    PickleGlobal{kTorch, "float8_e4m3fnuz", kDtype, Dtype::kF8E4M3Fnuz},
    PickleGlobal{kTorch, "float8_e5m2fnuz", kDtype, Dtype::kF8E5M2Fnuz},
    PickleGlobal{kTorch, "float8_e8m0fnu", kDtype, Dtype::kF8E8M0},
};

}  // namespace

std::optional<std::uint32_t> find_pickle_global(std::string_view module, std::string_view name) {
  const auto found = std::ranges::find_if(kGlobals, [&](const PickleGlobal& global) {
    return global.name == name && global.module == module;
  });
  if (found == kGlobals.end()) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(found - kGlobals.begin());
}

const PickleGlobal& pickle_global(std::uint64_t index) {
  TP_ASSERT(index < kGlobals.size());
  return kGlobals[index];
}

Error refused_pickle(std::string message) {
  return Error(ErrorCode::kUnsupported, std::move(message))
      .with_reason("pickle")
      .with_hint(std::string(kConvertPickleHint));
}

}  // namespace trash_panda::format
