// Plan and WorkerProfile as JSON: the only file that includes the JSON library, which is slow to
// compile. Reading is strict: an unknown, missing or repeated key, a wrong type or a number out of
// range is an error that names the key.
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/program/plan.h"
#include "engine/program/profile.h"

namespace heddle::program {

namespace {

using Json = nlohmann::json;

constexpr int kDepthMax = 16;

// Text to a tree. The library keeps the last of two equal keys in silence, so they are found here.
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

// Reads one object's members. The first error stays; later reads return defaults.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
    if (!json.is_object()) {
      Fail(path_, "an object", json);
    }
  }

  int64_t Integer(const char* key, int64_t low, int64_t high) {
    const Json* const value = Find(key);
    return value == nullptr ? low : ToInteger(*value, Path(key), low, high);
  }
  int Int(const char* key, int low) {
    return static_cast<int>(Integer(key, low, std::numeric_limits<int>::max()));
  }
  double NonNegative(const char* key) {
    const Json* const value = Find(key);
    return value == nullptr ? 0 : ToNonNegative(*value, Path(key));
  }
  bool Bool(const char* key) {
    const Json* const value = Find(key);
    if (value != nullptr && !value->is_boolean()) {
      Fail(Path(key), "true or false", *value);
    }
    return status_.ok() && value != nullptr && value->get<bool>();
  }
  std::string Text(const char* key) {
    const Json* const value = Find(key);
    return value == nullptr ? std::string() : ToText(*value, Path(key));
  }
  /// Calls `each(element, path)` for each element of an array.
  template <typename F>
  void Array(const char* key, F&& each) {
    if (const Json* const value = Find(key); value != nullptr) {
      Elements(*value, Path(key), std::forward<F>(each));
    }
  }
  template <typename F>
  void Elements(const Json& array, const std::string& path, F&& each) {
    if (!array.is_array()) {
      Fail(path, "a list", array);
      return;
    }
    for (size_t i = 0; i < array.size() && status_.ok(); ++i) {
      each(array[i], fmt::format("{}[{}]", path, i));
    }
  }
  /// Calls `each(name, value, path)` for each member of an object.
  template <typename F>
  void Members(const char* key, F&& each) {
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

  int64_t ToInteger(const Json& value, const std::string& path, int64_t low, int64_t high) {
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
  double ToNonNegative(const Json& value, const std::string& path) {
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0) {
      Fail(path, "a number of at least 0", value);
      return 0;
    }
    return value.get<double>();
  }
  std::string ToText(const Json& value, const std::string& path) {
    if (!value.is_string()) {
      Fail(path, "a text", value);
      return {};
    }
    return value.get<std::string>();
  }
  void Fail(const std::string& path, std::string_view expected, const Json& got) {
    if (status_.ok()) {
      std::string text = got.dump(-1, ' ', false, Json::error_handler_t::replace);
      constexpr size_t kShown = 40;
      if (text.size() > kShown) {
        text = text.substr(0, kShown) + "…";
      }
      status_ = InvalidArgumentError("{}: expected {}, got {}", path, expected, text);
    }
  }
  void Take(const Status& status) {
    if (status_.ok()) {
      status_ = status;
    }
  }

  /// After all reads: the first error, or that of a key that nobody asked for.
  Status Finish() {
    if (status_.ok()) {
      for (auto member = json_.begin(); member != json_.end(); ++member) {
        if (known_.count(member.key()) == 0) {
          return InvalidArgumentError("{}: unknown key", Path(member.key()));
        }
      }
    }
    return status_;
  }

 private:
  std::string Path(const std::string& key) const { return path_ + "." + key; }

  const Json* Find(const char* key) {
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

  const Json& json_;
  const std::string path_;
  std::set<std::string> known_;
  Status status_;
};

Json ToJson(const Pipeline& pipeline) {
  Json stages = Json::array();
  for (const Stage& stage : pipeline.stages) {
    stages.push_back({{"worker", stage.worker},
                      {"first_segment", stage.first_segment},
                      {"last_segment", stage.last_segment},
                      {"recompute", stage.recompute},
                      {"ahead", stage.ahead}});
  }
  return {{"stages", std::move(stages)},
          {"first_microbatch", pipeline.first_microbatch},
          {"microbatches", pipeline.microbatches}};
}

Result<Stage> ReadStage(const Json& json, const std::string& path) {
  ObjectReader reader(json, path);
  Stage stage;
  stage.worker = reader.Int("worker", 0);
  stage.first_segment = reader.Int("first_segment", 0);
  stage.last_segment = reader.Int("last_segment", 0);
  stage.recompute = reader.Bool("recompute");
  stage.ahead = reader.Int("ahead", 0);
  HEDDLE_RETURN_IF_ERROR(reader.Finish());
  return stage;
}

Result<Pipeline> ReadPipeline(const Json& json, const std::string& path) {
  ObjectReader reader(json, path);
  Pipeline pipeline;
  reader.Array("stages", [&](const Json& element, const std::string& where) {
    Result<Stage> stage = ReadStage(element, where);
    reader.Take(stage.status());
    if (stage.ok()) {
      pipeline.stages.push_back(*stage);
    }
  });
  pipeline.first_microbatch = reader.Int("first_microbatch", 0);
  pipeline.microbatches = reader.Int("microbatches", 0);
  HEDDLE_RETURN_IF_ERROR(reader.Finish());
  return pipeline;
}

std::string Dump(const Json& json) {
  constexpr int kIndent = 2;
  return json.dump(kIndent, ' ', false, Json::error_handler_t::replace);
}

constexpr int64_t kIntegerMax = std::numeric_limits<int64_t>::max();

}  // namespace

std::string PlanToJson(const Plan& plan) {
  Json pipelines = Json::array();
  for (const Pipeline& pipeline : plan.pipelines) {
    pipelines.push_back(ToJson(pipeline));
  }
  return Dump({{"generation", plan.generation},
               {"workers", plan.workers},
               {"pipelines", std::move(pipelines)},
               {"determinism", plan.determinism == Determinism::kExact ? "exact" : "relaxed"},
               {"predicted_step_seconds", plan.predicted_step_seconds},
               {"predicted_peak_bytes", plan.predicted_peak_bytes},
               {"transports", plan.transports}});
}

Result<Plan> PlanFromJson(std::string_view text) {
  HEDDLE_ASSIGN_OR_RETURN(const Json json, ParseText(text, "plan"));
  ObjectReader reader(json, "plan");
  Plan plan;
  plan.generation = reader.Integer("generation", 0, kIntegerMax);
  reader.Array("workers", [&](const Json& element, const std::string& path) {
    plan.workers.push_back(reader.ToText(element, path));
  });
  reader.Array("pipelines", [&](const Json& element, const std::string& path) {
    Result<Pipeline> pipeline = ReadPipeline(element, path);
    reader.Take(pipeline.status());
    if (pipeline.ok()) {
      plan.pipelines.push_back(*std::move(pipeline));
    }
  });
  const std::string determinism = reader.Text("determinism");
  plan.determinism = determinism == "relaxed" ? Determinism::kRelaxed : Determinism::kExact;
  if (determinism != "relaxed" && determinism != "exact") {
    reader.Fail("plan.determinism", "\"exact\" or \"relaxed\"", Json(determinism));
  }
  plan.predicted_step_seconds = reader.NonNegative("predicted_step_seconds");
  reader.Array("predicted_peak_bytes", [&](const Json& element, const std::string& path) {
    plan.predicted_peak_bytes.push_back(reader.ToInteger(element, path, 0, kIntegerMax));
  });
  reader.Array("transports", [&](const Json& row, const std::string& path) {
    plan.transports.emplace_back();
    reader.Elements(row, path, [&](const Json& element, const std::string& where) {
      plan.transports.back().push_back(reader.ToText(element, where));
    });
  });
  HEDDLE_RETURN_IF_ERROR(reader.Finish());
  return plan;
}

std::string ProfileToJson(const WorkerProfile& profile) {
  return Dump({{"worker", profile.worker},
               {"seconds", profile.seconds},
               {"flops_per_second", profile.flops_per_second},
               {"bytes_per_second", profile.bytes_per_second},
               {"instruction_seconds", profile.instruction_seconds},
               {"memory_bytes", profile.memory_bytes}});
}

Result<WorkerProfile> ProfileFromJson(std::string_view text) {
  HEDDLE_ASSIGN_OR_RETURN(const Json json, ParseText(text, "profile"));
  ObjectReader reader(json, "profile");
  WorkerProfile profile;
  profile.worker = reader.Text("worker");
  reader.Members("seconds",
                 [&](const std::string& name, const Json& value, const std::string& path) {
                   profile.seconds.emplace(name, reader.ToNonNegative(value, path));
                 });
  profile.flops_per_second = reader.NonNegative("flops_per_second");
  profile.bytes_per_second = reader.NonNegative("bytes_per_second");
  profile.instruction_seconds = reader.NonNegative("instruction_seconds");
  profile.memory_bytes = reader.Integer("memory_bytes", 0, kIntegerMax);
  HEDDLE_RETURN_IF_ERROR(reader.Finish());
  return profile;
}

}  // namespace heddle::program
