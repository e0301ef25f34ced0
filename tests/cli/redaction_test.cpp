#include "redaction.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/plan/hardware_json.h"

#include "console.h"
#include "hardware_report.h"

namespace trash_panda::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

/// Where homes are; put together here, as a home folder in a source is a mistake elsewhere.
const std::string kHome = "/home";

const Identity kPlanted = {.users = {"zaphodb", "al"},
                           .hosts = {"heartofgold.example.org", "heartofgold"},
                           .homes = {kHome + "/zaphodb"},
                           .salt = "salt"};

std::string redacted(std::string_view text) {
  return redact(text, kPlanted);
}

TEST(Redact, HomesAndUsers) {
  EXPECT_EQ(redacted(kHome + "/zaphodb/models"), "~/models");
  EXPECT_EQ(redacted(kHome + "/zaphodb"), "~");
  EXPECT_THAT(redacted(kHome + "/zaphodbx/models"), Not(HasSubstr("zaphod")));
  EXPECT_THAT(redacted(kHome + "/trillian/models"), MatchesRegex("/home/<user-....>/models"));
  EXPECT_THAT(redacted("/run/media/ford/stick"), MatchesRegex("/run/media/<user-....>/stick"));
  EXPECT_THAT(redacted("/data/ZaphodB_models"), MatchesRegex("/data/<user-....>_models"));
  EXPECT_THAT(redacted("prefixzaphodbsuffix"), MatchesRegex("prefix<user-....>suffix"));
}

TEST(Redact, AShortNameOnlyAsAWord) {
  EXPECT_THAT(redacted("/data/al/x"), MatchesRegex("/data/<user-....>/x"));
  EXPECT_EQ(redacted("serial also total"), "serial also total");
}

TEST(Redact, HostsAndServers) {
  EXPECT_THAT(redacted("on HeartOfGold today"), MatchesRegex("on <host-....> today"));
  EXPECT_THAT(redacted("heartofgold.example.org"), MatchesRegex("<host-....>"));
  for (const char* text :
       {"nas.local:/export/models", "//server/share/models", "smb://server/share",
        "https://user:pw@host/path", "zaphod@example.org"}) {
    EXPECT_THAT(redacted(text), MatchesRegex("(<[a-z]+-....>:?/?)+")) << text;
  }
}

TEST(Redact, NumbersOfDevices) {
  EXPECT_THAT(redacted("GPU-01020304-0506-0708-090a-0b0c0d0e0f10"),
              MatchesRegex("GPU-<uuid-....>"));
  EXPECT_THAT(redacted("eth0 de:ad:be:ef:00:01 up"), MatchesRegex("eth0 <mac-....> up"));
  EXPECT_THAT(redacted("DE-AD-BE-EF-00-01"), MatchesRegex("<mac-....>"));
  EXPECT_THAT(redacted("192.168.17.4"), MatchesRegex("<ip-....>"));
  EXPECT_THAT(redacted("fe80::1ff:fe23:4567:890a"), MatchesRegex("<ip-....>"));
  EXPECT_THAT(redacted("2001:db8:0:1:2:3:4:5"), MatchesRegex("<ip-....>"));
  EXPECT_THAT(redacted("Samsung_SSD_980_PRO_2TB_S6B0NL0T912345K"),
              MatchesRegex("Samsung_SSD_980_PRO_2TB_<serial-....>"));
  EXPECT_THAT(redacted("WD-WCC4N0123456"), MatchesRegex("WD-<serial-....>"));
  EXPECT_THAT(redacted("eui.0025385b71b04a3f"), Not(HasSubstr("0025385b")));
}

TEST(Redact, Tokens) {
  EXPECT_THAT(redacted("/data/hf_AbCdEfGhIjKlMnOpQrStUvWxYz"), MatchesRegex("/data/<token-....>"));
  EXPECT_THAT(redacted("ghp_0123456789abcdefABCD"), Not(HasSubstr("0123")));
  EXPECT_THAT(redacted("snapshots/8b3a0f64d1c2e5a7b9f0c1d2e3f4a5b6c7d8e9f0"),
              MatchesRegex("snapshots/<serial-....>"));
}

TEST(Redact, LeavesWhatAReportIsFor) {
  for (const char* text :
       {"Debian GNU/Linux 12 (bookworm)", "6.1.0-18-amd64", "5.15.153.1-microsoft-standard-WSL2",
        "13th Gen Intel(R) Core(TM) i9-13900K", "AMD Ryzen 9 7950X3D 16-Core Processor",
        "NVIDIA GeForce RTX 4090", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "570.86.15",
        "0000:01:00.0", "avx512_vbmi2", "WD_BLACK SN850X 2000GB", "dm-1 (nvme0n1)", "nvme0n1",
        "2026-03-01T12:00:00Z", "0-7,16-23", "fuse.sshfs",
        "no NVIDIA driver (libcuda.so.1 not found)",
        "/data/models/model-00001-of-00030.safetensors"}) {
    EXPECT_EQ(redacted(text), text);
  }
}

TEST(Redact, EqualTextsGetEqualTagsAndTheSaltDecidesWhich) {
  const std::string first = redacted("S6B0NL0T912345K");
  EXPECT_EQ(first, redacted("s6b0nl0t912345k"));
  EXPECT_NE(first, redacted("S6B0NL0T912345L"));
  Identity other = kPlanted;
  other.salt = "other";
  EXPECT_NE(first, redact("S6B0NL0T912345K", other));
}

TEST(Redact, TwiceIsOnce) {
  const std::string once = redacted("zaphodb heartofgold 192.168.17.4 S6B0NL0T912345K");
  EXPECT_EQ(redacted(once), once);
}

/// Every text of a machine's description is `all`.
plan::Hardware planted_machine(const std::string& all) {
  plan::Hardware hardware;
  hardware.note = hardware.measured_at = hardware.fingerprint = all;
  hardware.system = {.os = all, .kernel = all, .container = all, .virtual_machine = all};
  hardware.cpu.model = all;
  hardware.cpu.features = {all};
  hardware.transparent_hugepages = all;
  hardware.cgroup_limit_bytes = 1;
  hardware.cgroup_path = "/user.slice/" + all;
  hardware.numa_nodes = {{.index = 0, .ram_bytes = 1, .cpus = all},
                         {.index = 1, .ram_bytes = 1, .cpus = all}};
  plan::DiskInfo disk;
  disk.path = kHome + "/zaphodb/" + all;
  disk.filesystem = disk.device = disk.model = disk.bus = disk.note = disk.sample =
      disk.measured_at = all;
  disk.read_bytes_per_s = 1;
  disk.read_request_bytes = 1;
  hardware.disks = {disk};
  hardware.gpus = {
      {.name = all, .uuid = all, .compute_capability = all, .driver = all, .pci_address = all}};
  hardware.gpu_note = all;
  return hardware;
}

/// Something private, and what of it must not be left, in small letters.
struct Secret {
  std::string text;
  std::vector<std::string> parts;
};

std::vector<Secret> planted_secrets() {
  const std::string on_windows = R"(C:\Users)";
  return {
      // Users: by login, by the account's full name in any spelling, by others' home folders.
      {"zaphodb", {"zaphod"}},
      {"Arthur Dentwick", {"arthur", "dentwick"}},
      {"/data/arthur.dentwick/x", {"arthur", "dentwick"}},
      {"ARTHUR_DENTWICK", {"arthur", "dentwick"}},
      {"arthurdentwick7", {"arthur", "dentwick"}},
      {"of Dentwick, A.", {"dentwick"}},
      {on_windows + R"(\marvin\models)", {"marvin"}},
      {"c:/users/marvin", {"marvin"}},
      {kHome + "s/marvin/models", {"marvin"}},
      {kHome + "/Tricia McMillan/models", {"tricia", "mcmillan"}},
      {kHome + "/Tricia McMillan", {"tricia", "mcmillan"}},
      {"/export/users/marvin", {"marvin"}},
      {"/export" + kHome + "/marvin", {"marvin"}},
      {"/u/marvin/models", {"marvin"}},
      {"/mnt/nfs/Users/marvin", {"marvin"}},
      // Hosts, with the domain that they share with others.
      {"heartofgold", {"heartofgold"}},
      {"heartofgold.sirius.example.org", {"heartofgold", "sirius", "example.org"}},
      {"backup7.sirius.example.org", {"backup7", "sirius", "example.org"}},
      {"mounted from sirius.example.org", {"sirius", "example.org"}},
      {"nas.example.org:/export/models", {"nas", "example"}},
      // Addresses of hardware.
      {"de:ad:be:ef:00:01", {"ef:00", "de:ad"}},
      {"eth0_de:ad:be:ef:00:01", {"ef:00", "de:ad"}},
      {"de_ad_be_ef_00_01", {"de_ad", "ef_00"}},
      {"deadbeef0001", {"deadbeef"}},
      {"enxdeadbeef0001", {"deadbeef"}},
      {"dead.beef.0001", {"dead.beef"}},
      {"deadbe-ef0001", {"deadbe"}},
      {"01020304-0506-0708-090a-0b0c0d0e0f10", {"01020304", "0b0c0d0e0f10"}},
      {"10.11.12.13", {"10.11"}},
      // What opens doors, with digits or without.
      {"hf_AbCdEfGhIjKlMnOpQrStUvWxYz", {"hf_abc", "uvwxyz"}},
      {"token=correcthorse", {"correcthorse"}},
      {"HF_TOKEN: correcthorse", {"correcthorse"}},
      {"?access_token=correct-horse&x=1", {"correct", "horse"}},
      {"password=hunter", {"hunter"}},
      {"Authorization: Bearer correcthorse", {"correcthorse"}},
      // Serial numbers, short ones too.
      {"S6B0NL0T912345K", {"s6b0nl0t"}},
      {"S4X9K2", {"s4x9k2"}},
      {"ata-Samsung_SSD_850_EVO_250GB_S21PNXAG", {"s21pnxag"}},
      {"WCC4N0AB", {"wcc4n0ab"}},
      {"Serial Number: abcxyz", {"abcxyz"}},
      {"S/N: 7GH", {"7gh"}},
  };
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

TEST(RedactHardware, NothingPlantedIsInAnyFormat) {
  Identity identity = kPlanted;
  identity.users = {"Arthur Dentwick", "zaphodb", "al"};
  identity.hosts = {"heartofgold.sirius.example.org", "heartofgold"};
  const auto now = std::chrono::system_clock::now();
  const Console console({.json = false});
  for (const Secret& secret : planted_secrets()) {
    const auto hardware = redact(planted_machine(secret.text), identity);
    ASSERT_TRUE(hardware) << hardware.error().to_string();
    for (const std::string& text :
         {plan::write_hardware(*hardware), hardware_text(*hardware, now, console),
          hardware_bug_report(*hardware, now), hardware_comparison({}, *hardware)}) {
      EXPECT_THAT(text, HasSubstr("-")) << "an empty report has no secrets";
      for (const std::string& part : secret.parts) {
        EXPECT_THAT(lower(text), Not(HasSubstr(part))) << secret.text;
      }
    }
    const std::string once = redact(secret.text, identity);
    EXPECT_THAT(once, HasSubstr("<")) << "a tag tells that something was there";
    EXPECT_EQ(redact(once, identity), once);
  }
}

TEST(RedactHardware, FiguresStay) {
  plan::Hardware hardware;
  hardware.ram_total_bytes = 25'276'510'208;
  hardware.cpu.features = {"avx2"};
  const auto done = redact(hardware, kPlanted);
  ASSERT_TRUE(done);
  EXPECT_EQ(*done, hardware);
}

}  // namespace
}  // namespace trash_panda::cli
