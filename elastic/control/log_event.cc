#include "elastic/control/log_event.h"

#include <cmath>

#include <fmt/format.h>

#include "base/yaml/quote.h"

namespace heddle::elastic {
namespace {

std::string FormatValue(const LogEvent::Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return std::to_string(*integer);
  }
  if (const auto* real = std::get_if<double>(&value)) {
    return std::isfinite(*real) ? fmt::format("{:.9g}", *real) : "null";
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    return QuoteJson(*text);
  }
  const std::string& raw = std::get<RawJson>(value).text;
  std::string line;
  for (const char c : raw) {  // Indented JSON becomes one line: JSON strings hold no bare newline.
    line += c == '\n' || c == '\r' ? ' ' : c;
  }
  return line.empty() ? "null" : line;
}

}  // namespace

const LogEvent::Value* LogEvent::Find(const std::string& name) const {
  for (const auto& field : fields) {
    if (field.first == name) {
      return &field.second;
    }
  }
  return nullptr;
}

std::string FormatLogEvent(const LogEvent& event, double wall_clock_seconds) {
  std::string line =
      fmt::format("{{\"time\": {:.6f}, \"event\": {}", wall_clock_seconds, QuoteJson(event.kind));
  for (const auto& [name, value] : event.fields) {
    line += ", " + QuoteJson(name) + ": " + FormatValue(value);
  }
  return line + "}";
}

}  // namespace heddle::elastic
