#include "errors.h"

#include <string>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace trash_panda::python {
namespace {

// Leaves the Python exception for `error` set, as a translator must.
void set_python_error(const Error& error) {
  try {
    const auto& shortage = error.shortage();
    const nb::object needed = shortage ? nb::cast(shortage->needed_bytes) : nb::none();
    const nb::object budget = shortage ? nb::cast(shortage->budget_bytes) : nb::none();
    const nb::object exception =
        nb::module_::import_("trash_panda._errors")
            .attr("make_error")(std::string(error_code_name(error.code())), error.message(),
                                error.hint(), std::string(error.reason()), needed, budget);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  } catch (nb::python_error& failure) {
    failure.restore();
  }
}

}  // namespace

void register_error_translator() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const NativeError& native) {
      set_python_error(native.error());
    }
  });
}

}  // namespace trash_panda::python
