#pragma once

#include <string_view>

namespace trash_panda::cli {

/// The page of `report --to html`, as embedded when the program is built: report_page.html, in
/// which
/// "@STYLE@", "@SCRIPT@" and "@RUN@" stand for the two others and for the data.
extern const std::string_view kReportPageHtml;
extern const std::string_view kReportPageCss;
extern const std::string_view kReportPageJs;

}  // namespace trash_panda::cli
