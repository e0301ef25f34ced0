#include "redaction.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <functional>
#include <regex>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/plan/hardware_json.h"

#include "json_text.h"

namespace trash_panda::cli {

namespace {

/// Names of accounts that everyone has say nothing of anyone.
constexpr std::array<std::string_view, 3> kEverybodysNames = {"root", "localhost", "nobody"};
/// A shorter name is only replaced where it is a word of its own: "al" is in "serial".
constexpr std::size_t kNameInsideWordsMin = 4;
/// Words with letters and this many digits among their characters look like serial numbers; so do
/// long ones without. Models of CPUs, GPUs and drives have fewer.
constexpr std::size_t kSerialLengthMin = 8;
constexpr std::size_t kSerialDigitsMin = 5;
constexpr std::size_t kTokenLengthMin = 20;

std::string tag(std::string_view kind, std::string_view value, const Identity& identity) {
  std::string salted = identity.salt;
  salted += '\0';
  std::ranges::transform(value, std::back_inserter(salted),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return fmt::format("<{}-{:04x}>", kind, std::hash<std::string>()(salted) & 0xffff);
}

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
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
};

/// In the order in which they are tried: what is part of something longer comes later.
const std::vector<Pattern>& patterns() {
  constexpr auto kFlags = std::regex::ECMAScript | std::regex::icase | std::regex::optimize;
  static const std::vector<Pattern> kPatterns = {
      // Whole addresses of servers and shares: user:password@host, //server/share, host:/export.
      {"mail", std::regex(R"([\w.+-]+@[\w-]+(\.[\w-]+)*)", kFlags)},
      {"share", std::regex(R"(\b[a-z][a-z0-9+.-]*://[^\s"';,)]+)", kFlags)},
      {"share", std::regex(R"((^|[\s"'(])(//|\\\\)[\w.-]+[/\\][^\s"';,)]*)", kFlags)},
      {"share", std::regex(R"(\b[\w-]+(\.[\w-]+)*:/[^\s"';,)]*)", kFlags)},
      {"uuid", std::regex(R"([0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12})", kFlags)},
      {"mac", std::regex(R"(\b([0-9a-f]{2}[:-]){5,7}[0-9a-f]{2}\b)", kFlags)},
      {"mac", std::regex(R"(\b([0-9a-f]{4}\.){2}[0-9a-f]{4}\b)", kFlags)},
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
    if (match->str().empty()) {
      continue;
    }
    out.append(rest, text.cbegin() + match->position());
    std::string found = match->str();
    // The share's first group is what stands before it.
    const bool keeps_first = found.find_first_of(" \t\"'(") == 0;
    out += keeps_first ? found.substr(0, 1) : "";
    out += tag(pattern.kind, keeps_first ? found.substr(1) : found, identity);
    rest = text.cbegin() + match->position() + match->length();
  }
  out.append(rest, text.cend());
  return out;
}

bool looks_like_serial(std::string_view word) {
  const auto digits = static_cast<std::size_t>(
      std::ranges::count_if(word, [](unsigned char c) { return std::isdigit(c) != 0; }));
  const bool has_letters = digits != word.size();
  // Kernels and systems are full of dates: "20240305" is one, and no serial number of a drive is
  // that alone, but it could be: it goes too.
  return (word.size() >= kSerialLengthMin && digits >= kSerialDigitsMin) ||
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
    out += looks_like_serial(word) ? tag("serial", word, identity) : std::string(word);
    at = end;
  }
  return out;
}

bool is_everybodys(std::string_view name) {
  return std::ranges::any_of(kEverybodysNames,
                             [&](std::string_view known) { return known == name; });
}

std::string replace_names(std::string text, const std::vector<std::string>& names,
                          std::string_view kind, const Identity& identity) {
  for (const std::string& name : names) {
    if (!name.empty() && !is_everybodys(name)) {
      text =
          replace_name(text, name, tag(kind, name, identity), name.size() >= kNameInsideWordsMin);
    }
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
  // Homes of others, where their name follows a folder that holds nothing else.
  static const std::regex kOthersHome(R"((/(?:home|Users|media|run/media)/)([^/\s"';,)<]+))");
  std::string named;
  auto rest = out.cbegin();
  for (std::sregex_iterator match(out.begin(), out.end(), kOthersHome), end; match != end;
       ++match) {
    named.append(rest, out.cbegin() + match->position(2));
    named += tag("user", match->str(2), identity);
    rest = out.cbegin() + match->position(2) + match->length(2);
  }
  named.append(rest, out.cend());
  out = std::move(named);
  for (const Pattern& pattern : patterns()) {
    out = replace_pattern(out, pattern, identity);
  }
  out = replace_names(std::move(out), identity.hosts, "host", identity);
  out = replace_names(std::move(out), identity.users, "user", identity);
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
