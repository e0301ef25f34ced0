# Writes version_info.cpp. Run with cmake -P at each build: a commit made since the last configure
# must not leave the old one in `trash-panda --version`.
set(commit "unknown")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS "${SOURCE_DIR}/.git")
  execute_process(
    COMMAND "${GIT_EXECUTABLE}" -C "${SOURCE_DIR}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    set(commit "${answer}")
  endif()
endif()
string(REPLACE "GNU " "g++ " compiler "${COMPILER}")
string(REPLACE "Clang " "clang++ " compiler "${compiler}")
file(WRITE "${OUTPUT}.new" "// Written by version_info.cmake.
#include \"version_info.h\"

namespace trash_panda::cli {

const char* const kVersion = \"${VERSION}\";
const char* const kCommit = \"${commit}\";
const char* const kCompiler = \"${compiler}\";

}  // namespace trash_panda::cli
")
execute_process(COMMAND "${CMAKE_COMMAND}" -E copy_if_different "${OUTPUT}.new" "${OUTPUT}")
file(REMOVE "${OUTPUT}.new")
