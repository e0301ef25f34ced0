#pragma once

#include <string_view>

#include <nanobind/nanobind.h>

namespace trash_panda::python {

/// A Python text. @throws UnicodeDecodeError  It is not UTF-8.
inline nanobind::str to_str(std::string_view text) {
  return nanobind::str(text.data(), text.size());
}

}  // namespace trash_panda::python
