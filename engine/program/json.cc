// Plan and WorkerProfile as JSON.
#include <limits>

#include <nlohmann/json.hpp>

#include "engine/program/json_reader.h"
#include "engine/program/plan.h"
#include "engine/program/profile.h"

namespace heddle::program {

namespace {

using Kind = graph::Placement::Kind;

constexpr int64_t kIntegerMax = std::numeric_limits<int64_t>::max();

Json ToJson(const Stage& stage) {
  Json json = {{"first_segment", stage.first_segment},
               {"last_segment", stage.last_segment},
               {"recompute", stage.recompute},
               {"ahead", stage.ahead}};
  if (stage.group.size() == 1 && stage.layout < 0) {
    json["worker"] = stage.worker();
  } else {
    json["group"] = stage.group;
    json["layout"] = stage.layout;
  }
  return json;
}

Json ToJson(const Pipeline& pipeline) {
  Json stages = Json::array();
  for (const Stage& stage : pipeline.stages) {
    stages.push_back(ToJson(stage));
  }
  return {{"stages", std::move(stages)},
          {"first_microbatch", pipeline.first_microbatch},
          {"microbatches", pipeline.microbatches}};
}

Json ToJson(const graph::Placed& placed) {
  const graph::Placement& placement = placed.placement;
  if (placement.kind == Kind::kReplicate) {
    return {{"placement", "replicate"}};
  }
  Json json = {{"placement", placement.cover ? "cover" : "shard"},
               {"dim", placement.dim},
               {"unit", placement.unit},
               {"cut", placed.cut}};
  if (placement.cover) {
    json["covered"] = placed.covered;
  }
  return json;
}

Json ToJson(const graph::Layout& layout) {
  Json cuts = Json::array();
  for (const graph::Cut& cut : layout.cuts) {
    cuts.emplace_back(cut.units);
  }
  Json tensors = Json::object();
  for (const auto& [name, placed] : layout.tensors) {
    tensors[name] = ToJson(placed);
  }
  return {{"cuts", std::move(cuts)}, {"tensors", std::move(tensors)}};
}

// A list of what `read` reads.
template <typename T>
std::vector<T> ReadList(ObjectReader& reader,
                        const char* key,
                        Result<T> (*read)(const Json&, const std::string&)) {
  std::vector<T> list;
  reader.Array(key, [&](const Json& element, const std::string& path) {
    Result<T> item = read(element, path);
    reader.Take(item.status());
    if (item.ok()) {
      list.push_back(*std::move(item));
    }
  });
  return list;
}

Result<Stage> ReadStage(const Json& json, const std::string& path) {
  ObjectReader reader(json, path);
  Stage stage;
  if (reader.Has("group")) {
    stage.group = reader.Ints("group");
    stage.layout = reader.Int("layout", 0);
  } else {
    stage.group = {reader.Int("worker", 0)};
  }
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
  pipeline.stages = ReadList(reader, "stages", ReadStage);
  pipeline.first_microbatch = reader.Int("first_microbatch", 0);
  pipeline.microbatches = reader.Int("microbatches", 0);
  HEDDLE_RETURN_IF_ERROR(reader.Finish());
  return pipeline;
}

Result<graph::Placed> ReadPlaced(const Json& json, const std::string& path) {
  ObjectReader reader(json, path);
  graph::Placed placed;
  const std::string placement = reader.Text("placement");
  if (placement == "shard" || placement == "cover") {
    const int dim = reader.Int("dim", 0);
    const int64_t unit = reader.Integer("unit", 1, kIntegerMax);
    placed.placement = graph::Placement::Shard(dim, unit);
    placed.cut = reader.Int("cut", 0);
    if (placement == "cover") {
      placed.placement = graph::Placement::Cover(dim, unit);
      placed.covered = reader.Integer("covered", 1, kIntegerMax);
    }
  } else if (placement != "replicate") {
    reader.Fail(path + ".placement", R"("replicate", "shard" or "cover")", Json(placement));
  }
  HEDDLE_RETURN_IF_ERROR(reader.Finish());
  return placed;
}

Result<graph::Layout> ReadLayout(const Json& json, const std::string& path) {
  ObjectReader reader(json, path);
  graph::Layout layout;
  reader.Array("cuts", [&](const Json& units, const std::string& where) {
    layout.cuts.push_back({.units = reader.ToInts(units, where)});
  });
  reader.Members("tensors",
                 [&](const std::string& name, const Json& value, const std::string& where) {
                   const Result<graph::Placed> placed = ReadPlaced(value, where);
                   reader.Take(placed.status());
                   if (placed.ok()) {
                     layout.tensors.emplace(name, *placed);
                   }
                 });
  HEDDLE_RETURN_IF_ERROR(reader.Finish());
  return layout;
}

}  // namespace

std::string PlanToJson(const Plan& plan) {
  Json pipelines = Json::array();
  for (const Pipeline& pipeline : plan.pipelines) {
    pipelines.push_back(ToJson(pipeline));
  }
  Json json = {{"generation", plan.generation},
               {"workers", plan.workers},
               {"pipelines", std::move(pipelines)},
               {"determinism", plan.determinism == Determinism::kExact ? "exact" : "relaxed"},
               {"predicted_step_seconds", plan.predicted_step_seconds},
               {"predicted_peak_bytes", plan.predicted_peak_bytes},
               {"transports", plan.transports}};
  if (!plan.predicted_process_bytes.empty()) {
    json["predicted_process_bytes"] = plan.predicted_process_bytes;
  }
  for (const graph::Layout& layout : plan.layouts) {
    json["layouts"].push_back(ToJson(layout));
  }
  if (plan.divides_optimizer) {
    json["optimizer"] = "divided";
  }
  return Dump(json);
}

Result<Plan> PlanFromJson(std::string_view text) {
  HEDDLE_ASSIGN_OR_RETURN(const Json json, ParseText(text, "plan"));
  ObjectReader reader(json, "plan");
  Plan plan;
  plan.generation = reader.Integer("generation", 0, kIntegerMax);
  reader.Array("workers", [&](const Json& element, const std::string& path) {
    plan.workers.push_back(reader.ToText(element, path));
  });
  plan.pipelines = ReadList(reader, "pipelines", ReadPipeline);
  if (reader.Has("layouts")) {
    plan.layouts = ReadList(reader, "layouts", ReadLayout);
  }
  const std::string determinism = reader.Text("determinism");
  plan.determinism = determinism == "relaxed" ? Determinism::kRelaxed : Determinism::kExact;
  if (determinism != "relaxed" && determinism != "exact") {
    reader.Fail("plan.determinism", "\"exact\" or \"relaxed\"", Json(determinism));
  }
  if (reader.Has("optimizer")) {
    const std::string optimizer = reader.Text("optimizer");
    plan.divides_optimizer = optimizer == "divided";
    if (!plan.divides_optimizer && optimizer != "whole") {
      reader.Fail("plan.optimizer", "\"divided\" or \"whole\"", Json(optimizer));
    }
  }
  plan.predicted_step_seconds = reader.NonNegative("predicted_step_seconds");
  const auto read_bytes = [&](const char* name, std::vector<int64_t>& bytes) {
    reader.Array(name, [&](const Json& element, const std::string& path) {
      bytes.push_back(reader.ToInteger(element, path, 0, kIntegerMax));
    });
  };
  read_bytes("predicted_peak_bytes", plan.predicted_peak_bytes);
  if (reader.Has("predicted_process_bytes")) {
    read_bytes("predicted_process_bytes", plan.predicted_process_bytes);
  }
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
               {"memory_bytes", profile.memory_bytes},
               {"scratch_bytes", profile.scratch_bytes},
               {"process_bytes", profile.process_bytes}});
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
  profile.scratch_bytes = reader.Integer("scratch_bytes", 0, kIntegerMax);
  profile.process_bytes = reader.Integer("process_bytes", 0, kIntegerMax);
  HEDDLE_RETURN_IF_ERROR(reader.Finish());
  return profile;
}

}  // namespace heddle::program
