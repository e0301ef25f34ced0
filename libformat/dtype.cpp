#include "trash_panda/format/dtype.h"

#include <array>

#include "trash_panda/base/error.h"

namespace trash_panda::format {

namespace {

struct DtypeInfo {
  Dtype dtype;
  std::string_view name;
  unsigned bits;
};

constexpr std::array<DtypeInfo, 23> kDtypes = {{
    {Dtype::kBool, "BOOL", 8},
    {Dtype::kU8, "U8", 8},
    {Dtype::kI8, "I8", 8},
    {Dtype::kF8E5M2, "F8_E5M2", 8},
    {Dtype::kF8E4M3, "F8_E4M3", 8},
    {Dtype::kF8E8M0, "F8_E8M0", 8},
    {Dtype::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {Dtype::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {Dtype::kI16, "I16", 16},
    {Dtype::kU16, "U16", 16},
    {Dtype::kF16, "F16", 16},
    {Dtype::kBf16, "BF16", 16},
    {Dtype::kI32, "I32", 32},
    {Dtype::kU32, "U32", 32},
    {Dtype::kF32, "F32", 32},
    {Dtype::kC64, "C64", 64},
    {Dtype::kF64, "F64", 64},
    {Dtype::kI64, "I64", 64},
    {Dtype::kU64, "U64", 64},
    {Dtype::kF4, "F4", 4},
    {Dtype::kF6E2M3, "F6_E2M3", 6},
    {Dtype::kF6E3M2, "F6_E3M2", 6},
    {Dtype::kGgmlBlock, "GGML", 0},
}};

const DtypeInfo& info(Dtype dtype) {
  const auto at = static_cast<std::size_t>(dtype);
  TP_ASSERT(at < kDtypes.size() && kDtypes[at].dtype == dtype);
  return kDtypes[at];
}

}  // namespace

std::string_view dtype_name(Dtype dtype) {
  return info(dtype).name;
}

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (const DtypeInfo& known : kDtypes) {
    if (known.name == name && known.dtype != Dtype::kGgmlBlock) {
      return known.dtype;
    }
  }
  return std::nullopt;
}

unsigned dtype_bits(Dtype dtype) {
  TP_ASSERT(dtype != Dtype::kGgmlBlock);
  return info(dtype).bits;
}

bool is_fp8(Dtype dtype) {
  return dtype == Dtype::kF8E4M3 || dtype == Dtype::kF8E5M2 || dtype == Dtype::kF8E4M3Fnuz ||
         dtype == Dtype::kF8E5M2Fnuz;
}

bool is_plain_float(Dtype dtype) {
  return dtype == Dtype::kF16 || dtype == Dtype::kBf16 || dtype == Dtype::kF32 ||
         dtype == Dtype::kF64;
}

}  // namespace trash_panda::format
