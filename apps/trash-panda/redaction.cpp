#include "redaction.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <functional>
#include <regex>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/plan/hardware_json.h"

#include "json_text.h"

namespace trash_panda::cli {

namespace {

/// Names of accounts that everyone has say nothing of anyone.
constexpr std::array<std::string_view, 3> kEverybodysNames = {"root", "localhost", "nobody"};
/// A shorter name is only replaced where it is a word of its own: "al" is in "serial".
constexpr std::size_t kNameInsideWordsMin = 4;
/// A part of a name with spaces is replaced from this length on: initials are no names.
constexpr std::size_t kNamePartMin = 2;
/// What stands between the parts of a name where spaces may not.
constexpr std::array<std::string_view, 7> kNameJoints = {" ", "", "_", "-", ".", "+", "%20"};
/// Labels of domains that everyone has.
constexpr std::array<std::string_view, 8> kEverybodysDomains = {
    "local", "localdomain", "lan", "home", "internal", "intranet", "private", "corp"};

/// Words with letters and this many digits among their characters look like serial numbers; so do
/// long ones without. Models of CPUs, GPUs and drives have fewer.
constexpr std::size_t kSerialLengthMin = 8;
constexpr std::size_t kSerialDigitsMin = 5;
/// In capitals throughout, so many digits are enough.
constexpr std::size_t kCapitalSerialDigitsMin = 2;
/// Shorter words do where letters and digits take turns that often: "S4X9K2".
constexpr std::size_t kShortSerialLengthMin = 6;
constexpr std::size_t kShortSerialTurnsMin = 4;
constexpr std::size_t kTokenLengthMin = 20;
/// Hexadecimal digits in a row that may be a hardware address.
constexpr std::size_t kAddressDigits = 12;

std::string tag(std::string_view kind, std::string_view value, const Identity& identity) {
  std::string salted = identity.salt;
  salted += '\0';
  std::ranges::transform(value, std::back_inserter(salted),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return fmt::format("<{}-{:04x}>", kind, std::hash<std::string>()(salted) & 0xffff);
}

/// Letters and digits; those beyond ASCII count as letters.
bool is_word_character(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalnum(byte) != 0 || byte >= 0x80;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// Replaces `name`, whatever its case, by `replacement`.
std::string replace_name(std::string_view text, std::string_view name, std::string_view replacement,
                         bool inside_words) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const bool begins = inside_words || at == 0 || !is_word_character(text[at - 1]);
    const std::size_t end = at + name.size();
    const bool ends = inside_words || end >= text.size() || !is_word_character(text[end]);
    if (begins && ends && equal_ignoring_case(text.substr(at, name.size()), name)) {
      out += replacement;
      at = end;
    } else {
      out += text[at];
      ++at;
    }
  }
  return out;
}

std::string replace_home(std::string_view text, std::string_view home) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = at + home.size();
    const bool ends = end >= text.size() || !is_word_character(text[end]);
    if (ends && text.substr(at, home.size()) == home) {
      out += '~';
      at = end;
    } else {
      out += text[at];
      ++at;
    }
  }
  return out;
}

struct Pattern {
  std::string_view kind;
  std::regex expression;
  std::size_t group = 0;  ///< What of a match is replaced.
};

/// In the order in which they are tried: what is part of something longer comes later. What is
/// replaced never begins with the "<" of a tag.
const std::vector<Pattern>& patterns() {
  constexpr auto kFlags = std::regex::ECMAScript | std::regex::icase | std::regex::optimize;
  static const std::vector<Pattern> kPatterns = {
      // Homes of others, where a name follows a folder that holds nothing else. It may have spaces.
      {"user",
       std::regex(R"([/\\](homes?\d*|users?|u\d*|people|staff|students?|media)[/\\]+)"
                  R"(([^/\\"';,()<>\n]+))",
                  kFlags),
       2},
      // What is called a secret or a serial number.
      {"token",
       std::regex(R"((token|secret|passw(or)?d|passphrase|pwd|key|credentials?|auth(orization)?|)"
                  R"(session|cookie|sig(nature)?)["']?\s*[=:]\s*["']?(bearer\s+|basic\s+)?)"
                  R"((?!bearer\s|basic\s)([^\s"'&;,)<]+))",
                  kFlags),
       6},
      {"token", std::regex(R"(\b(bearer|basic)\s+([^\s"'&;,)<]{6,}))", kFlags), 2},
      {"serial",
       std::regex(R"((serial([ _-]?(number|no))?|\bs/?n|service[ _-]?tag|asset([ _-]?tag)?)\.?)"
                  R"(\s*[=:#]\s*["']?([^\s"'&;,)<]+))",
                  kFlags),
       5},
      // Whole addresses of servers and shares: user:password@host, //server/share, host:/export.
      {"share", std::regex(R"(\b[a-z][a-z0-9+.-]*://[^\s"';,)<]+)", kFlags)},
      {"mail", std::regex(R"([\w.+-]+@[\w-]+(\.[\w-]+)*)", kFlags)},
      {"share", std::regex(R"((^|[\s"'(])((//|\\\\)[\w.-]+[/\\][^\s"';,)<]*))", kFlags), 2},
      {"share", std::regex(R"(\b[\w-]+(\.[\w-]+)*:/[^\s"';,)<]*)", kFlags)},
      {"uuid", std::regex(R"([0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12})", kFlags)},
      {"mac", std::regex(R"(([0-9a-f]{2}[:_.-]){5,7}[0-9a-f]{2}(?![0-9a-f]))", kFlags)},
      {"mac", std::regex(R"(([0-9a-f]{4}[_.-]){2}[0-9a-f]{4}(?![0-9a-f]))", kFlags)},
      {"mac", std::regex(R"([0-9a-f]{6}[:_.-][0-9a-f]{6}(?![0-9a-f]))", kFlags)},
      {"ip", std::regex(R"(\b[0-9a-f]{0,4}(:[0-9a-f]{1,4})*::([0-9a-f]{1,4}(:[0-9a-f]{1,4})*)?)",
                        kFlags)},
      {"ip", std::regex(R"(\b([0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}\b)", kFlags)},
      // A version of four numbers looks the same; that of WSL's kernel is well known.
      {"ip", std::regex(R"(\b(\d{1,3}\.){3}\d{1,3}\b(?!-microsoft))", kFlags)},
      {"wwn", std::regex(R"(\b(wwn|eui|naa|nguid|nvme\.)[-.:0x]*[0-9a-f]{8,}\b)", kFlags)},
      {"token", std::regex(R"(\b(hf|ghp|gho|ghs|ghu|github_pat|glpat|sk|pk|xox[abprs]|akia|npm|)"
                           R"(pypi|eyJ)[-_]?[A-Za-z0-9_.-]{8,})",
                           kFlags)},
  };
  return kPatterns;
}

std::string replace_pattern(const std::string& text, const Pattern& pattern,
                            const Identity& identity) {
  std::string out;
  auto rest = text.cbegin();
  for (std::sregex_iterator match(text.begin(), text.end(), pattern.expression), end; match != end;
       ++match) {
    if (match->length(pattern.group) == 0) {
      continue;
    }
    const auto begin = text.cbegin() + match->position(pattern.group);
    out.append(rest, begin);
    out += tag(pattern.kind, match->str(pattern.group), identity);
    rest = begin + match->length(pattern.group);
  }
  out.append(rest, text.cend());
  return out;
}

/// Names that the kernel gives to drives and their partitions: "nvme0n1p2".
bool is_drive_name(std::string_view word) {
  static const std::regex kDrive(R"((nvme|mmcblk|loop|md|nbd|zram)\d+((c\d+)?n\d+)?(p\d+)?)");
  return std::regex_match(word.begin(), word.end(), kDrive);
}

/// How often a letter follows a digit, or a digit a letter.
std::size_t count_turns(std::string_view word) {
  std::size_t turns = 0;
  for (std::size_t at = 1; at < word.size(); ++at) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(word[at])) != 0;
    const bool was_digit = std::isdigit(static_cast<unsigned char>(word[at - 1])) != 0;
    turns += is_digit != was_digit ? 1U : 0U;
  }
  return turns;
}

bool has_address(std::string_view word) {
  std::size_t run = 0;
  for (const char c : word) {
    run = std::isxdigit(static_cast<unsigned char>(c)) != 0 ? run + 1 : 0;
    if (run == kAddressDigits) {
      return true;
    }
  }
  return false;
}

bool looks_like_serial(std::string_view word) {
  const auto digits = static_cast<std::size_t>(
      std::ranges::count_if(word, [](unsigned char c) { return std::isdigit(c) != 0; }));
  const bool has_letters = digits != word.size();
  const bool has_small_letters =
      std::ranges::any_of(word, [](unsigned char c) { return std::islower(c) != 0; });
  const std::size_t digits_min = has_small_letters ? kSerialDigitsMin : kCapitalSerialDigitsMin;
  // Kernels and systems are full of dates: "20240305" is one, and no serial number of a drive is
  // that alone, but it could be: it goes too.
  return (word.size() >= kSerialLengthMin && digits >= digits_min) ||
         (word.size() >= kShortSerialLengthMin && count_turns(word) >= kShortSerialTurnsMin &&
          !is_drive_name(word)) ||
         (word.size() >= kTokenLengthMin && (digits != 0 || !has_letters)) ||
         word.size() >= 2 * kTokenLengthMin;
}

/// Words are letters and digits; tags that are there already are left alone.
std::string replace_serials(std::string_view text, const Identity& identity) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '<') {
      const std::size_t close = std::min(text.find('>', at), text.size() - 1);
      out += text.substr(at, close + 1 - at);
      at = close + 1;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && is_word_character(text[end])) {
      ++end;
    }
    if (end == at) {
      out += text[at];
      ++at;
      continue;
    }
    const std::string_view word = text.substr(at, end - at);
    out += looks_like_serial(word) ? tag("serial", word, identity)
           : has_address(word)     ? tag("mac", word, identity)
                                   : std::string(word);
    at = end;
  }
  return out;
}

bool is_everybodys(std::string_view name) {
  return std::ranges::any_of(kEverybodysNames,
                             [&](std::string_view known) { return known == name; });
}

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    if (end > at) {
      parts.emplace_back(text.substr(at, end - at));
    }
    at = end + 1;
  }
  return parts;
}

/// Replaces a user's name; of one with spaces ("Jane Doe") every spelling, and each part.
std::string replace_user(std::string text, const std::string& name, const Identity& identity) {
  const std::vector<std::string> parts = split(name, " \t");
  const std::string replacement = tag("user", name, identity);
  for (const std::string_view joint : kNameJoints) {
    const std::string joined = fmt::format("{}", fmt::join(parts, joint));
    if (!joined.empty() && !is_everybodys(joined)) {
      text = replace_name(text, joined, replacement, joined.size() >= kNameInsideWordsMin);
    }
  }
  for (const std::string& part : parts) {
    if (parts.size() > 1 && part.size() >= kNamePartMin && !is_everybodys(part)) {
      text = replace_name(text, part, tag("user", part, identity), /*inside_words=*/false);
    }
  }
  return text;
}

/// Replaces a domain with all that stands before it: "nas.example.org".
std::string replace_domain(std::string_view text, std::string_view domain,
                           const Identity& identity) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at + domain.size();
    const bool ends = end >= text.size() || !is_word_character(text[end]);
    const bool begins = at == 0 || !is_word_character(text[at - 1]);
    if (begins && ends && equal_ignoring_case(text.substr(at, domain.size()), domain)) {
      while (!out.empty() && (is_word_character(out.back()) || out.back() == '.' ||
                              out.back() == '-' || out.back() == '_')) {
        out.pop_back();
      }
      out += tag("domain", domain, identity);
      at = end;
    } else {
      out += text[at];
      ++at;
    }
  }
  return out;
}

/// Replaces a host's name and, of a full one, its domains and the organisation's label.
std::string replace_host(std::string text, const std::string& host, const Identity& identity) {
  if (host.empty() || is_everybodys(host)) {
    return text;
  }
  text = replace_name(text, host, tag("host", host, identity), host.size() >= kNameInsideWordsMin);
  const std::vector<std::string> labels = split(host, ".");
  for (std::size_t first = 1; first + 1 < labels.size(); ++first) {
    const std::vector<std::string> rest(labels.begin() + static_cast<std::ptrdiff_t>(first),
                                        labels.end());
    text = replace_domain(text, fmt::format("{}", fmt::join(rest, ".")), identity);
  }
  // Of "heartofgold.example.org", "example" alone says who it belongs to.
  if (labels.size() > 2 &&
      std::ranges::find(kEverybodysDomains, labels.back()) == kEverybodysDomains.end()) {
    const std::string& label = labels[labels.size() - 2];
    text = replace_name(text, label, tag("domain", label, identity), /*inside_words=*/false);
  }
  return text;
}

void redact_texts(Json& value, const Identity& identity) {
  if (value.is_string()) {
    value = redact(value.get<std::string>(), identity);
  } else if (value.is_structured()) {
    for (Json& member : value) {
      redact_texts(member, identity);
    }
  }
}

}  // namespace

std::string redact(std::string_view text, const Identity& identity) {
  std::string out(text);
  for (const std::string& home : identity.homes) {
    if (home.size() > 1) {
      out = replace_home(out, home);
    }
  }
  for (const Pattern& pattern : patterns()) {
    out = replace_pattern(out, pattern, identity);
  }
  for (const std::string& host : identity.hosts) {
    out = replace_host(std::move(out), host, identity);
  }
  for (const std::string& user : identity.users) {
    out = replace_user(std::move(out), user, identity);
  }
  return replace_serials(out, identity);
}

Result<plan::Hardware> redact(const plan::Hardware& hardware, const Identity& identity) {
  // Through the document, so that a member that is added later is redacted too.
  Json document = Json::parse(plan::write_hardware(hardware));
  const Json schema = document["schema"];
  redact_texts(document, identity);
  document["schema"] = schema;
  return plan::parse_hardware(document.dump(), "redacted report");
}

}  // namespace trash_panda::cli
