#include "engine/program/json_reader.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::program {

namespace {

constexpr int kDepthMax = 16;

}  // namespace

// The library keeps the last of two equal keys in silence, so they are found here.
Result<Json> ParseText(std::string_view text, std::string_view what) {
  std::vector<std::set<std::string>> keys;
  Status status;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kDepthMax && status.ok()) {
      status = InvalidArgumentError("{}: nested deeper than {}", what, kDepthMax);
    }
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end && !keys.empty()) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key && !keys.empty()) {
      const std::string& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second && status.ok()) {
        status = InvalidArgumentError("{}: key '{}' appears twice", what, key);
      }
    }
    return true;
  };
  try {
    Json json = Json::parse(text.begin(), text.end(), watch);
    HEDDLE_RETURN_IF_ERROR(status);
    return json;
  } catch (const Json::exception& error) {
    return InvalidArgumentError("{}: not JSON: {}", what, error.what());
  }
}

std::string Dump(const Json& json) {
  constexpr int kIndent = 2;
  return json.dump(kIndent, ' ', false, Json::error_handler_t::replace);
}

ObjectReader::ObjectReader(const Json& json, std::string path)
    : json_(json),
      path_(std::move(path)) {
  if (!json.is_object()) {
    Fail(path_, "an object", json);
  }
}

bool ObjectReader::Has(const char* key) const {
  return json_.contains(key);
}

int64_t ObjectReader::Integer(const char* key, int64_t low, int64_t high) {
  const Json* const value = Find(key);
  return value == nullptr ? low : ToInteger(*value, Path(key), low, high);
}

int ObjectReader::Int(const char* key, int low) {
  return static_cast<int>(Integer(key, low, std::numeric_limits<int>::max()));
}

std::vector<int> ObjectReader::Ints(const char* key) {
  const Json* const value = Find(key);
  return value == nullptr ? std::vector<int>() : ToInts(*value, Path(key));
}

double ObjectReader::NonNegative(const char* key) {
  const Json* const value = Find(key);
  return value == nullptr ? 0 : ToNonNegative(*value, Path(key));
}

bool ObjectReader::Bool(const char* key) {
  const Json* const value = Find(key);
  if (value != nullptr && !value->is_boolean()) {
    Fail(Path(key), "true or false", *value);
  }
  return status_.ok() && value != nullptr && value->get<bool>();
}

std::string ObjectReader::Text(const char* key) {
  const Json* const value = Find(key);
  return value == nullptr ? std::string() : ToText(*value, Path(key));
}

void ObjectReader::Array(const char* key, const Each& each) {
  if (const Json* const value = Find(key); value != nullptr) {
    Elements(*value, Path(key), each);
  }
}

void ObjectReader::Elements(const Json& array, const std::string& path, const Each& each) {
  if (!array.is_array()) {
    Fail(path, "a list", array);
    return;
  }
  for (size_t i = 0; i < array.size() && status_.ok(); ++i) {
    each(array[i], fmt::format("{}[{}]", path, i));
  }
}

void ObjectReader::Members(const char* key, const EachMember& each) {
  const Json* const value = Find(key);
  if (value == nullptr) {
    return;
  }
  if (!value->is_object()) {
    Fail(Path(key), "an object", *value);
    return;
  }
  for (auto member = value->begin(); member != value->end() && status_.ok(); ++member) {
    each(member.key(), member.value(), Path(key) + "." + member.key());
  }
}

int64_t ObjectReader::ToInteger(const Json& value,
                                const std::string& path,
                                int64_t low,
                                int64_t high) {
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= static_cast<uint64_t>(high) &&
                              static_cast<int64_t>(value.get<uint64_t>()) >= low
                        : value.is_number_integer() && value.get<int64_t>() >= low &&
                              value.get<int64_t>() <= high;
  if (!fits) {
    Fail(path, fmt::format("an integer from {} to {}", low, high), value);
    return low;
  }
  return value.get<int64_t>();
}

std::vector<int> ObjectReader::ToInts(const Json& array, const std::string& path) {
  std::vector<int> list;
  Elements(array, path, [&](const Json& element, const std::string& where) {
    list.push_back(static_cast<int>(ToInteger(element, where, 0, std::numeric_limits<int>::max())));
  });
  return list;
}

double ObjectReader::ToNonNegative(const Json& value, const std::string& path) {
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0) {
    Fail(path, "a number of at least 0", value);
    return 0;
  }
  return value.get<double>();
}

std::string ObjectReader::ToText(const Json& value, const std::string& path) {
  if (!value.is_string()) {
    Fail(path, "a text", value);
    return {};
  }
  return value.get<std::string>();
}

void ObjectReader::Fail(const std::string& path, std::string_view expected, const Json& got) {
  if (status_.ok()) {
    std::string text = got.dump(-1, ' ', false, Json::error_handler_t::replace);
    constexpr size_t kShown = 40;
    if (text.size() > kShown) {
      text = text.substr(0, kShown) + "…";
    }
    status_ = InvalidArgumentError("{}: expected {}, got {}", path, expected, text);
  }
}

void ObjectReader::Take(const Status& status) {
  if (status_.ok()) {
    status_ = status;
  }
}

Status ObjectReader::Finish() {
  if (status_.ok()) {
    for (auto member = json_.begin(); member != json_.end(); ++member) {
      if (known_.count(member.key()) == 0) {
        return InvalidArgumentError("{}: unknown key", Path(member.key()));
      }
    }
  }
  return status_;
}

const Json* ObjectReader::Find(const char* key) {
  if (!status_.ok()) {
    return nullptr;
  }
  known_.insert(key);
  const auto found = json_.find(key);
  if (found == json_.end()) {
    status_ = InvalidArgumentError("{}: missing", Path(key));
    return nullptr;
  }
  return &*found;
}

}  // namespace heddle::program
