#include <algorithm>
#include <set>
#include <string>

#include "cli_definitions.h"
#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::HasSubstr;

std::filesystem::path page_of(const cli::CommandDescription& command) {
  return std::filesystem::path(TP_MAN_DIR) /
         ((command.name.empty() ? "trash-panda" : "trash-panda-" + command.name) + ".1");
}

/// Every word of a text that looks like an option, roff's escapes undone.
std::set<std::string> options_in(std::string text) {
  for (std::size_t at = text.find("\\-"); at != std::string::npos; at = text.find("\\-", at)) {
    text.replace(at, 2, "-");
  }
  constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyz-";
  std::set<std::string> options;
  for (std::size_t at = text.find("--"); at != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_not_of(kNameCharacters, at), text.size());
    options.insert(text.substr(at, end - at));
    at = text.find("--", end);
  }
  return options;
}

TEST(ManPage, ListsTheOptionsThatHelpLists) {
  const cli::CommandLine command_line;
  const cli::CommandDescriptions commands = command_line.describe();
  ASSERT_GE(commands.size(), 5U);
  for (const cli::CommandDescription& command : commands) {
    const std::string page = read_text(page_of(command));
    const RunResult help =
        run_program(command.name.empty() ? std::vector<std::string>{"--help"}
                                         : std::vector<std::string>{command.name, "--help"});
    ASSERT_EQ(help.exit_code, 0);
    const std::set<std::string> in_help = options_in(help.out);
    const std::set<std::string> in_page = options_in(page);
    EXPECT_EQ(in_help, in_page) << command.name;
    EXPECT_TRUE(in_help.contains("--help"));
    for (const char* section :
         {".SH NAME", ".SH SYNOPSIS", ".SH EXIT STATUS", ".SH ENVIRONMENT", ".SH SEE ALSO"}) {
      EXPECT_THAT(page, HasSubstr(section)) << command.name;
    }
  }
}

TEST(ManPage, RendersWithoutWarnings) {
  if (run_shell("command -v groff").exit_code != 0) {
    GTEST_SKIP() << "no groff here";
  }
  const RunResult result =
      run_shell("for page in " TP_MAN_DIR "/*.1; do groff -man -Tutf8 -ww -z \"$page\"; done");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

TEST(Definitions, AreComplete) {
  const cli::CommandLine command_line;
  for (const cli::CommandDescription& command : command_line.describe()) {
    EXPECT_FALSE(command.description.empty()) << command.name;
    std::set<std::string> names;
    for (const cli::OptionDescription& option : command.options) {
      EXPECT_TRUE(names.insert(option.long_name).second) << option.long_name;
      EXPECT_FALSE(option.help.empty()) << option.long_name;
      EXPECT_FALSE(option.help.ends_with('.')) << option.long_name;
    }
  }
}

}  // namespace
}  // namespace trash_panda::testing
