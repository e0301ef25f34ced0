#include "trash_panda/format/ggml_type.h"

#include <algorithm>
#include <array>
#include <utility>

namespace trash_panda::format {

namespace {

/// By number. Q8_1 is as ggml has it since its sums are fp16 (36 bytes, not 40).
constexpr std::array kGgmlTypes = {
    GgmlType{0, "F32", 1, 4, Dtype::kF32},          GgmlType{1, "F16", 1, 2, Dtype::kF16},
    GgmlType{2, "Q4_0", 32, 18, std::nullopt},      GgmlType{3, "Q4_1", 32, 20, std::nullopt},
    GgmlType{6, "Q5_0", 32, 22, std::nullopt},      GgmlType{7, "Q5_1", 32, 24, std::nullopt},
    GgmlType{8, "Q8_0", 32, 34, std::nullopt},      GgmlType{9, "Q8_1", 32, 36, std::nullopt},
    GgmlType{10, "Q2_K", 256, 84, std::nullopt},    GgmlType{11, "Q3_K", 256, 110, std::nullopt},
    GgmlType{12, "Q4_K", 256, 144, std::nullopt},   GgmlType{13, "Q5_K", 256, 176, std::nullopt},
    GgmlType{14, "Q6_K", 256, 210, std::nullopt},   GgmlType{15, "Q8_K", 256, 292, std::nullopt},
    GgmlType{16, "IQ2_XXS", 256, 66, std::nullopt}, GgmlType{17, "IQ2_XS", 256, 74, std::nullopt},
    GgmlType{18, "IQ3_XXS", 256, 98, std::nullopt}, GgmlType{19, "IQ1_S", 256, 50, std::nullopt},
    GgmlType{20, "IQ4_NL", 32, 18, std::nullopt},   GgmlType{21, "IQ3_S", 256, 110, std::nullopt},
    GgmlType{22, "IQ2_S", 256, 82, std::nullopt},   GgmlType{23, "IQ4_XS", 256, 136, std::nullopt},
    GgmlType{24, "I8", 1, 1, Dtype::kI8},           GgmlType{25, "I16", 1, 2, Dtype::kI16},
    GgmlType{26, "I32", 1, 4, Dtype::kI32},         GgmlType{27, "I64", 1, 8, Dtype::kI64},
    GgmlType{28, "F64", 1, 8, Dtype::kF64},         GgmlType{29, "IQ1_M", 256, 56, std::nullopt},
    GgmlType{30, "BF16", 1, 2, Dtype::kBf16},       GgmlType{34, "TQ1_0", 256, 54, std::nullopt},
    GgmlType{35, "TQ2_0", 256, 66, std::nullopt},   GgmlType{39, "MXFP4", 32, 17, std::nullopt},
    GgmlType{40, "NVFP4", 64, 36, std::nullopt},    GgmlType{41, "Q1_0", 128, 18, std::nullopt},
    GgmlType{42, "Q2_0", 64, 18, std::nullopt},
};

using RemovedType = std::pair<std::uint32_t, std::string_view>;

constexpr std::array kRemovedTypes = {
    RemovedType{4, "Q4_2"},        RemovedType{5, "Q4_3"},        RemovedType{31, "Q4_0_4_4"},
    RemovedType{32, "Q4_0_4_8"},   RemovedType{33, "Q4_0_8_8"},   RemovedType{36, "IQ4_NL_4_4"},
    RemovedType{37, "IQ4_NL_4_8"}, RemovedType{38, "IQ4_NL_8_8"},
};

}  // namespace

const GgmlType* find_ggml_type(std::uint32_t id) {
  const auto found = std::ranges::lower_bound(kGgmlTypes, id, {}, &GgmlType::id);
  return found != kGgmlTypes.end() && found->id == id ? &*found : nullptr;
}

std::string_view removed_ggml_type(std::uint32_t id) {
  const auto found = std::ranges::find(kRemovedTypes, id, &RemovedType::first);
  return found == kRemovedTypes.end() ? std::string_view() : found->second;
}

}  // namespace trash_panda::format
