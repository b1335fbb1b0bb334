#include "cli/emulation_words.h"

#include <charconv>
#include <sstream>

#include "base/units.h"

namespace heddle::cli {
namespace {

Status ParseWord(const std::string& word, EmulationWords& out) {
  const size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
  if (key == "speed") {
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), out.emulation.speed);
    if (error != std::errc() || end != value.data() + value.size() || !(out.emulation.speed > 0) ||
        out.emulation.speed > 1) {
      return InvalidArgumentError(
          "emulation: speed: expected a number above 0 and up to 1, got '{}'", value);
    }
    out.speed = true;
  } else if (key == "memory") {
    HEDDLE_ASSIGN_OR_RETURN(const ByteSize size, ParseByteSize(value));
    out.emulation.memory_bytes = size.value;
    out.memory = true;
  } else if (key == "link") {
    HEDDLE_ASSIGN_OR_RETURN(const ByteRate rate, ParseByteRate(value));
    out.emulation.link_bytes_per_second = rate.value;
    out.link = true;
  } else {
    return InvalidArgumentError("emulation: '{}' is none of speed=, memory=, link=", word);
  }
  return Status::Ok();
}

}  // namespace

Result<EmulationWords> ParseEmulation(const std::vector<std::string>& words) {
  EmulationWords out;
  for (const std::string& list : words) {
    std::istringstream stream(list);
    for (std::string word; std::getline(stream, word, ',');) {
      HEDDLE_RETURN_IF_ERROR(ParseWord(word, out));
    }
  }
  return out;
}

}  // namespace heddle::cli
