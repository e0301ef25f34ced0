#include <string>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using GlobalOptions = CliTest;

TEST_F(GlobalOptions, HelpListsCommandsAndEndsWithExamples) {
  const RunResult result = run({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  for (const char* command : {"inspect", "plan", "simulate", "repack", "verify", "unpack", "bench",
                              "version", "completion"}) {
    EXPECT_THAT(result.out, HasSubstr(std::string("\n  ") + command + " "));
  }
  const std::size_t examples = result.out.find("\nExamples:\n");
  ASSERT_NE(examples, std::string::npos);
  EXPECT_THAT(result.out.substr(examples), Not(HasSubstr("--version")));
}

TEST_F(GlobalOptions, HelpOfACommandIsTheSameInEverySpelling) {
  const RunResult option = run({"plan", "--help"});
  EXPECT_EQ(option.exit_code, 0);
  EXPECT_THAT(option.out, StartsWith("Usage: trash-panda plan [OPTIONS] [MODEL]\n"));
  EXPECT_THAT(option.out, HasSubstr("\nExamples:\n"));
  EXPECT_EQ(option.out, run({"help", "plan"}).out);
  EXPECT_EQ(option.out, run({"-h", "plan"}).out);
}

TEST_F(GlobalOptions, HelpFitsEightyColumns) {
  for (const char* command :
       {"inspect", "plan", "simulate", "repack", "verify", "unpack", "bench", "help"}) {
    const RunResult result = run({command, "--help"});
    std::size_t begin = 0;
    while (begin < result.out.size()) {
      const std::size_t end = result.out.find('\n', begin);
      EXPECT_LE(end - begin, 86U) << result.out.substr(begin, end - begin);
      begin = end + 1;
    }
  }
}

TEST_F(GlobalOptions, VersionNamesCommitCompilerAndFeatures) {
  const RunResult result = run({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(StartsWith("trash-panda " TP_VERSION "\ncommit "),
                                HasSubstr("\ncompiler "), HasSubstr("+direct_io"),
                                HasSubstr("cuda"), HasSubstr("\npack format version 1\n")));
  EXPECT_EQ(result.out, run({"version"}).out);
  EXPECT_EQ(result.out, run({"-V"}).out);
  const auto document = nlohmann::json::parse(run({"version", "--json"}).out);
  EXPECT_EQ(document["schema"], "trash-panda/version/1");
  EXPECT_EQ(document["version"], TP_VERSION);
}

TEST_F(GlobalOptions, RefusesARunWithoutACommand) {
  expect_failure(run({}), 2, {"command is missing", "--help"});
}

TEST_F(GlobalOptions, SuggestsTheNearestCommand) {
  expect_failure(run({"plna", "model.safetensors"}), 2, {"unknown command 'plna'", "plan?"});
  expect_failure(run({"help", "repak"}), 2, {"'repak'", "repack?"});
  expect_failure(run({"xyzzy"}), 2, {"'xyzzy'", "--help"});
}

TEST_F(GlobalOptions, SuggestsTheNearestOption) {
  expect_failure(run({"plan", "model.safetensors", "--max-rm", "8GB"}), 2,
                 {"unknown option '--max-rm'", "--max-ram?"});
  expect_failure(run({"plan", "--max-rm=8GB", "model.safetensors"}), 2,
                 {"unknown option '--max-rm'", "--max-ram?"});
  expect_failure(run({"inspect", "model.safetensors", "-Z"}), 2, {"unknown option '-Z'"});
}

TEST_F(GlobalOptions, RefusesMissingAndSurplusArguments) {
  expect_failure(run({"plan"}), 2, {"MODEL is missing", ".safetensors"});
  expect_failure(run({"plan", "model.safetensors", "other"}), 2, {"unexpected argument 'other'"});
  expect_failure(run({"plan", "model.safetensors", "--max-ram"}), 2, {"--max-ram"});
}

TEST_F(GlobalOptions, TakesAModelWithTheNameOfACommand) {
  write_model(path("plan"));
  EXPECT_EQ(run({"inspect", "plan"}).exit_code, 0);
  std::filesystem::rename(path("plan"), path("-odd"));
  EXPECT_EQ(run({"inspect", "--", "-odd"}).exit_code, 0);
}

TEST_F(GlobalOptions, GoBeforeAndAfterTheCommand) {
  EXPECT_EQ(run({"--json", "inspect", "model.safetensors"}).out,
            run({"inspect", "model.safetensors", "--json"}).out);
}

TEST_F(GlobalOptions, RefusesUnknownWords) {
  expect_failure(run({"inspect", "model.safetensors", "--color", "blue"}), 2,
                 {"--color", "'blue'", "auto, always, never"});
  expect_failure(run({"inspect", "model.safetensors", "--progress=loud"}), 2,
                 {"--progress", "'loud'"});
}

TEST_F(GlobalOptions, ColourIsForTerminalsUnlessForced) {
  EXPECT_THAT(run({"plan", "model.safetensors"}).out, Not(HasSubstr("\x1b[")));
  EXPECT_THAT(run({"plan", "model.safetensors", "--color=always"}).out, HasSubstr("\x1b["));
  EXPECT_THAT(run({"plan", "model.safetensors"}, {{"CLICOLOR_FORCE", "1"}}).out,
              HasSubstr("\x1b["));
  EXPECT_THAT(run({"plan", "model.safetensors"}, {{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", "1"}}).out,
              Not(HasSubstr("\x1b[")));
  EXPECT_THAT(run({"plan", "model.safetensors", "--color=never"}, {{"CLICOLOR_FORCE", "1"}}).out,
              Not(HasSubstr("\x1b[")));
}

TEST_F(GlobalOptions, QuietLeavesOnlyTheResult) {
  EXPECT_THAT(run({"plan", "model.safetensors"}).err, HasSubstr("next: "));
  const RunResult quiet = run({"plan", "-q", "model.safetensors"});
  EXPECT_EQ(quiet.err, "");
  EXPECT_THAT(quiet.out, HasSubstr("4 blocks"));
}

TEST_F(GlobalOptions, EnvironmentStandsInForOptionsAndLoses) {
  const std::map<std::string, std::string> environment = {{"TRASH_PANDA_COMPUTE_DTYPE", "fp32"}};
  const auto dtype = [&](const RunResult& result) {
    return nlohmann::json::parse(result.out)["settings"]["compute_dtype"];
  };
  EXPECT_EQ(dtype(run({"plan", "model.safetensors", "--json"})), "bf16");
  EXPECT_EQ(dtype(run({"plan", "model.safetensors", "--json"}, environment)), "fp32");
  EXPECT_EQ(
      dtype(run({"plan", "model.safetensors", "--json", "--compute-dtype=fp16"}, environment)),
      "fp16");
}

TEST_F(GlobalOptions, NamesTheVariableOfAWrongValue) {
  expect_failure(run({"plan", "model.safetensors"}, {{"TRASH_PANDA_MAX_RAM", "lots"}}), 2,
                 {"TRASH_PANDA_MAX_RAM", "lots"});
  expect_failure(run({"plan", "model.safetensors"}, {{"TRASH_PANDA_NO_DISK", "maybe"}}), 2,
                 {"TRASH_PANDA_NO_DISK", "maybe"});
}

TEST_F(GlobalOptions, WarnsAboutUnknownVariables) {
  const RunResult result = run({"inspect", "model.safetensors"}, {{"TRASH_PANDA_MAX_RAN", "8GB"}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err,
            "warning: TRASH_PANDA_MAX_RAN is not a variable of trash-panda; did you mean "
            "TRASH_PANDA_MAX_RAM?\n");
  // Known to the Python package.
  EXPECT_EQ(run({"inspect", "model.safetensors"}, {{"TRASH_PANDA_PROFILE", "1"}}).err, "");
}

TEST_F(GlobalOptions, FailuresAreJsonObjectsOnDemand) {
  const RunResult result = run({"--json", "inspect", "absent.safetensors"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "");
  const auto error = nlohmann::json::parse(result.err);
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["exit"], 3);
  EXPECT_TRUE(error["code"].is_string());
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("absent.safetensors"));
  EXPECT_TRUE(error["hint"].is_string());
  // Also where the arguments themselves are wrong.
  EXPECT_EQ(nlohmann::json::parse(run({"--json", "plan", "--bogus", "x"}).err)["code"], "usage");
}

TEST_F(GlobalOptions, ClosedPipeIsNoFailure) {
  const RunResult result = run_shell(
      "{ \"$TP\" inspect --tensors --json model.safetensors; echo \"exit $?\" >&2; } | head -c 1",
      {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(result.err, "exit 0\n");
}

TEST_F(GlobalOptions, FullDriveUnderStdoutIsAFailure) {
  if (!std::filesystem::exists("/dev/full")) {
    GTEST_SKIP() << "no /dev/full here";
  }
  const RunResult result = run_shell("\"$TP\" inspect model.safetensors > /dev/full",
                                     {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.err, HasSubstr("stdout"));
}

TEST_F(GlobalOptions, CompletionScriptsAreValidAndKnowTheOptions) {
  const RunResult bash = run_shell("\"$TP\" completion bash > c.sh && bash -n c.sh",
                                   {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(bash.exit_code, 0) << bash.err;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const RunResult script = run({"completion", shell});
    EXPECT_EQ(script.exit_code, 0);
    EXPECT_THAT(script.out, HasSubstr("max-ram"));
    EXPECT_THAT(script.out, HasSubstr("repack"));
  }
  const RunResult completed = run_shell(
      "bash -c '. <(\"$TP\" completion bash); COMP_WORDS=(trash-panda plan m --max-r); "
      "COMP_CWORD=3; _trash_panda; echo \"${COMPREPLY[@]}\"'",
      {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(completed.out, "--max-ram\n");
  expect_failure(run({"completion", "tcsh"}), 2, {"tcsh", "bash"});
}

}  // namespace
}  // namespace trash_panda::testing
