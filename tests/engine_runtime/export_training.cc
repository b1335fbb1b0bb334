/// \file
/// What a job trains on, for an implementation that shares no code with Heddle: initial weights,
/// the batches of the first steps, optimizer and schedule, in the format of
/// tests/python/reference_model.py. Beside Hugging Face's tensors, "parameters" lists the same
/// weights as Heddle names and lays them out.
///
/// Usage: export_training JOB.yaml STEPS FOLDER
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/system/file.h"
#include "engine/data/dataset.h"
#include "engine/graph/initialize.h"
#include "engine/graph/models/model.h"
#include "engine/graph/models/names.h"
#include "engine/job/job.h"

namespace heddle {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Status WriteArray(const std::string& path, const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return WriteFileAtomically(path, bytes);
}

struct ForeignTensor {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

// `values` are the parameter's own [rows, columns]; `tensor` takes them as its part mapping.box.
void Place(const graph::NameMapping& mapping,
           const std::vector<float>& values,
           ForeignTensor& tensor) {
  const bool matrix = mapping.foreign_shape.size() == 2;
  const int64_t width = matrix ? mapping.foreign_shape[1] : 1;
  const int64_t rows = mapping.box.extent[0];
  const int64_t columns = matrix ? mapping.box.extent[1] : 1;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t from = mapping.transpose ? c * rows + r : r * columns + c;
      const int64_t to =
          (mapping.box.offset[0] + r) * width + (matrix ? mapping.box.offset[1] : 0) + c;
      tensor.values[static_cast<size_t>(to)] = values[static_cast<size_t>(from)];
    }
  }
}

Status ExportWeights(const job::JobConfig& job, const std::string& folder, Json& index) {
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph,
                          graph::BuildTrainingGraph(job.model, job::GraphOptions(job)));
  const std::vector<graph::NameMapping> names = graph::HuggingFaceNames(job.model);
  std::vector<ForeignTensor> tensors;
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    const graph::Parameter& parameter = graph.parameters[p];
    const graph::NameMapping& mapping = names.at(p);
    if (mapping.name != parameter.name || mapping.shape != parameter.shape) {
      return InternalError("parameter {} is mapped as {}", parameter.name, mapping.name);
    }
    std::vector<float> values(static_cast<size_t>(ElementCount(parameter.shape)));
    graph::InitializeParameter(parameter, job.seed, WholeBox(parameter.shape), values);
    const std::string file = fmt::format("parameter-{}.f32", p);
    HEDDLE_RETURN_IF_ERROR(WriteArray(folder + "/" + file, values));
    index["parameters"].push_back(
        {{"name", parameter.name}, {"shape", parameter.shape}, {"file", file}});
    size_t t = 0;
    while (t < tensors.size() && tensors[t].name != mapping.foreign_name) {
      ++t;
    }
    if (t == tensors.size()) {
      const auto count = static_cast<size_t>(ElementCount(mapping.foreign_shape));
      tensors.push_back({.name = mapping.foreign_name,
                         .shape = mapping.foreign_shape,
                         .values = std::vector<float>(count)});
    }
    Place(mapping, values, tensors[t]);
  }
  for (size_t t = 0; t < tensors.size(); ++t) {
    const std::string file = fmt::format("tensor-{}.f32", t);
    HEDDLE_RETURN_IF_ERROR(WriteArray(folder + "/" + file, tensors[t].values));
    index["tensors"].push_back(
        {{"name", tensors[t].name}, {"shape", tensors[t].shape}, {"file", file}});
  }
  return Status::Ok();
}

Status ExportBatches(const job::JobConfig& job,
                     int64_t steps,
                     const std::string& folder,
                     Json& index) {
  HEDDLE_ASSIGN_OR_RETURN(const auto dataset, data::Dataset::Open(job::DatasetOptions(job)));
  const auto length = static_cast<size_t>(job.batch.sequence);
  const auto samples = static_cast<size_t>(steps * job.batch.global);
  std::vector<int32_t> tokens(samples * length);
  std::vector<int32_t> targets(samples * length);
  for (size_t sample = 0; sample < samples; ++sample) {
    HEDDLE_RETURN_IF_ERROR(dataset->ReadSample(
        static_cast<int64_t>(sample), std::span(tokens).subspan(sample * length, length),
        std::span(targets).subspan(sample * length, length)));
  }
  HEDDLE_RETURN_IF_ERROR(WriteArray(folder + "/tokens.i32", tokens));
  HEDDLE_RETURN_IF_ERROR(WriteArray(folder + "/targets.i32", targets));
  index["batches"] = {{"tokens", "tokens.i32"},
                      {"targets", "targets.i32"},
                      {"steps", steps},
                      {"batch", job.batch.global},
                      {"sequence", job.batch.sequence}};
  return Status::Ok();
}

Status Export(const std::string& path, int64_t steps, const std::string& folder) {
  HEDDLE_ASSIGN_OR_RETURN(const job::JobConfig job, job::LoadJob(path, {}));
  HEDDLE_RETURN_IF_ERROR(MakeFolders(folder));
  Json index;
  index["config"] = Json::parse(graph::ModelConfigJson(job.model));
  const job::OptimizerSection& optimizer = job.optimizer;
  index["optimizer"] = {{"beta1", optimizer.adamw.beta1},
                        {"beta2", optimizer.adamw.beta2},
                        {"epsilon", optimizer.adamw.epsilon},
                        {"weight_decay", optimizer.adamw.weight_decay},
                        {"max_gradient_norm", optimizer.adamw.max_gradient_norm}};
  const bool cosine = optimizer.schedule == job::LearningRateSchedule::kCosine;
  index["schedule"] = {{"kind", cosine ? "cosine" : "constant"},
                       {"learning_rate", optimizer.learning_rate},
                       {"minimum_learning_rate", optimizer.minimum_learning_rate},
                       {"warmup_steps", optimizer.warmup_steps},
                       {"steps", job.steps}};
  HEDDLE_RETURN_IF_ERROR(ExportWeights(job, folder, index));
  HEDDLE_RETURN_IF_ERROR(ExportBatches(job, steps, folder, index));
  return WriteFileAtomically(folder + "/index.json", index.dump(1) + "\n");
}

}  // namespace
}  // namespace heddle

int main(int count, char** arguments) {
  int64_t steps = 0;
  const std::string_view number = count == 4 ? arguments[2] : "";
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), steps);
  if (number.empty() || parsed.ptr != number.data() + number.size() || steps < 1) {
    std::fprintf(stderr, "usage: export_training JOB.yaml STEPS FOLDER\n");
    return 2;
  }
  const heddle::Status status = heddle::Export(arguments[1], steps, arguments[3]);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
