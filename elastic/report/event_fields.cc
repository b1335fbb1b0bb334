#include "elastic/report/event_fields.h"

namespace heddle::elastic {

double NumberOf(const LogEvent& event, const std::string& field) {
  const LogEvent::Value* value = event.Find(field);
  if (value == nullptr) {
    return 0;
  }
  if (const auto* integer = std::get_if<int64_t>(value)) {
    return static_cast<double>(*integer);
  }
  const auto* number = std::get_if<double>(value);
  return number == nullptr ? 0 : *number;
}

std::string TextOf(const LogEvent& event, const std::string& field) {
  const LogEvent::Value* value = event.Find(field);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? "" : *text;
}

}  // namespace heddle::elastic
