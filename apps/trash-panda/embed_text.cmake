# Writes report_page_text.cpp: the parts of the report's page as text in the program. Run with
# cmake -P whenever one of them changes.
set(definitions "")
foreach(part html css js)
  file(READ "${SOURCE_DIR}/report_page.${part}" text)
  string(TOUPPER "${part}" name)
  string(SUBSTRING "${name}" 0 1 first)
  string(SUBSTRING "${part}" 1 -1 rest)
  string(APPEND definitions
    "const std::string_view kReportPage${first}${rest} = R\"page(${text})page\";\n")
endforeach()
file(WRITE "${OUTPUT}" "// Written by embed_text.cmake.
#include \"report_page.h\"

namespace trash_panda::cli {

${definitions}
}  // namespace trash_panda::cli
")
