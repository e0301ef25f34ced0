#pragma once

#include <exception>
#include <utility>

#include "trash_panda/base/error.h"

namespace trash_panda::python {

/// An Error on its way to Python: thrown by unwrap(), caught by nanobind only.
class NativeError : public std::exception {
 public:
  explicit NativeError(Error error) : error_(std::move(error)) {}
  [[nodiscard]] const Error& error() const { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return error_.message().c_str(); }

 private:
  Error error_;
};

/// Makes nanobind turn every NativeError into the exception class that trash_panda._errors names
/// for its code.
void register_error_translator();

/// The value of a Result, or its error thrown.
template <class T>
T unwrap(Result<T>&& result) {
  if (!result) {
    throw NativeError(std::move(result).error());
  }
  if constexpr (!std::is_void_v<T>) {
    return *std::move(result);
  }
}

}  // namespace trash_panda::python
