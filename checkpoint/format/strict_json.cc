#include "checkpoint/format/strict_json.h"

#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::checkpoint {

using Json = nlohmann::json;

Result<Json> ParseStrictJson(std::string_view text, int maximum_depth) {
  std::string problem;
  std::vector<std::set<std::string>> keys;
  const auto callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (!problem.empty()) {  // What follows one is dropped, and its events do not come in pairs.
      return false;
    }
    if (depth > maximum_depth) {
      problem = "nested too deeply";
      return false;
    }
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key && !keys.empty() &&
               !keys.back().insert(parsed.get<std::string>()).second) {
      problem = fmt::format("key '{}' twice", parsed.get<std::string>());
    }
    return problem.empty();
  };
  try {
    Json json = Json::parse(text.begin(), text.end(), callback);
    if (!problem.empty()) {
      return DataLossError("{}", problem);
    }
    return json;
  } catch (const Json::exception& error) {
    return DataLossError("not JSON: {}", error.what());
  }
}

}  // namespace heddle::checkpoint
