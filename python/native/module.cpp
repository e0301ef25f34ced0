#include <nanobind/nanobind.h>

#include "errors.h"
#include "pack_binding.h"
#include "plan_binding.h"
#include "streamer_binding.h"

NB_MODULE(_native, module) {
  // At interpreter exit models still hang in reference cycles, as always with torch: nanobind's
  // list of "leaked" instances would tell a user about a fault that is none.
  nanobind::set_leak_warnings(false);
  module.doc() = "The engine of trash_panda. Private: use the functions of the package.";
  module.attr("__version__") = TP_VERSION;
  trash_panda::python::register_error_translator();
  trash_panda::python::bind_pack(module);
  trash_panda::python::bind_plan(module);
  trash_panda::python::bind_streamer(module);
}
