#include "elastic/store/encoded_state.h"

#include <nlohmann/json.hpp>

namespace heddle::elastic {
namespace {

using Json = nlohmann::json;

std::string ToHex(const std::string& bytes) {
  static const char* const kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

std::string FromHex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

Json EncodePlan(const PlanOutcome& plan) {
  return {{"plan", plan.plan_json},
          {"members", plan.members},
          {"hashes", plan.program_hashes},
          {"parameters", plan.parameters},
          {"parameter_count", plan.parameter_count},
          {"predicted_step_seconds", plan.predicted_step_seconds}};
}

DurableWorker DecodeWorker(const Json& json) {
  return {.incarnation = FromHex(json.at("incarnation")),
          .host = json.at("host"),
          .profile_json = json.at("profile"),
          .failure_domain = json.value("failure_domain", std::string()),
          .leaves = json.value("leaves", std::string()),
          .noticed = json.value("noticed", false),
          .notice = json.value("notice", int64_t{0}),
          .withdrawn = json.value("withdrawn", int64_t{0}),
          .arithmetic = json.value("arithmetic", Arithmetic())};
}

PlanOutcome DecodePlan(const Json& json) {
  PlanOutcome plan;
  plan.plan_json = json.at("plan");
  plan.members = json.at("members").get<std::vector<std::string>>();
  plan.program_hashes = json.at("hashes").get<std::vector<uint64_t>>();
  plan.parameters = json.at("parameters").get<std::vector<std::vector<int32_t>>>();
  plan.parameter_count = json.at("parameter_count");
  plan.predicted_step_seconds = json.at("predicted_step_seconds");
  return plan;
}

DurableGeneration DecodeGeneration(const Json& json) {
  DurableGeneration generation{
      .number = json.at("number"), .plan = DecodePlan(json.at("plan")), .members = {}};
  for (const auto& [name, incarnation] : json.at("members").items()) {
    generation.members[name] = FromHex(incarnation);
  }
  return generation;
}

DurableStretch DecodeStretch(const Json& json) {
  return {.after_step = json.at("after_step"),
          .provenance = {.guarantee = GuaranteeNamed(json.at("guarantee").get<std::string>()),
                         .reason = json.at("reason"),
                         .arithmetic = json.at("arithmetic").get<Arithmetic>()}};
}

Json EncodeWorker(const DurableWorker& worker) {
  Json json = {{"incarnation", ToHex(worker.incarnation)},
               {"host", worker.host},
               {"profile", worker.profile_json},
               {"failure_domain", worker.failure_domain},
               {"arithmetic", worker.arithmetic}};
  if (!worker.leaves.empty()) {
    json.update({{"leaves", worker.leaves}, {"noticed", worker.noticed}});
  }
  if (worker.notice > 0) {
    json.update({{"notice", worker.notice}, {"withdrawn", worker.withdrawn}});
  }
  return json;
}

}  // namespace

std::string EncodeState(const DurableState& state) {
  Json json = {{"job_id", state.job_id},
               {"job_yaml", state.job_yaml},
               {"secret", ToHex(state.secret)},
               {"output_folder", state.output_folder},
               {"data", state.data},
               {"known_step", state.known_step},
               {"checkpoints", state.checkpoints},
               {"given_up_checkpoints", state.given_up_checkpoints},
               {"agreed_step", state.agreed_step},
               {"next_worker_number", state.next_worker_number},
               {"life", state.restarts},
               {"finished", state.finished},
               {"failed", state.failed},
               {"workers", Json::object()}};
  for (const auto& [name, worker] : state.workers) {
    json["workers"][name] = EncodeWorker(worker);
  }
  for (const DurableRelease& release : state.releases) {
    json["releases"].push_back({{"incarnation", ToHex(release.incarnation)},
                                {"reason", release.reason},
                                {"requeue", release.requeue}});
  }
  for (const auto& [generation, source] : state.snapshots) {
    json["snapshots"].push_back({{"generation", generation},
                                 {"plan", source.plan_json},
                                 {"owners", source.owners},
                                 {"last_step", source.last_step}});
  }
  for (const RefusedState& refused : state.refused) {
    json["refused"].push_back({{"holder", refused.holder},
                               {"generation", refused.generation},
                               {"step", refused.step},
                               {"receiver", refused.receiver}});
  }
  for (const DurableStretch& stretch : state.lineage) {
    json["lineage"].push_back({{"after_step", stretch.after_step},
                               {"guarantee", std::string(NameOf(stretch.provenance.guarantee))},
                               {"reason", stretch.provenance.reason},
                               {"arithmetic", stretch.provenance.arithmetic}});
  }
  if (state.held) {
    Json members = Json::object();
    for (const auto& [name, incarnation] : state.held->members) {
      members[name] = ToHex(incarnation);
    }
    json["held"] = {{"number", state.held->number},
                    {"plan", EncodePlan(state.held->plan)},
                    {"members", members}};
  }
  for (const auto& [hash, grant] : state.admission.grants) {
    json["grants"][hash] = {
        {"names", grant.names}, {"ends", grant.ends}, {"uses_left", grant.uses_left}};
  }
  for (const auto& [worker, until] : state.admission.revoked) {
    json["revoked"][worker] = until;
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<DurableState> DecodeState(const std::string& text, const std::string& where) {
  try {
    const Json json = Json::parse(text);
    DurableState state;
    state.job_id = json.at("job_id");
    state.job_yaml = json.at("job_yaml");
    state.secret = FromHex(json.at("secret"));
    state.output_folder = json.at("output_folder");
    state.data = json.value("data", uint64_t{0});
    state.known_step = json.at("known_step");
    state.checkpoints = json.at("checkpoints").get<std::vector<int64_t>>();
    state.given_up_checkpoints = json.value("given_up_checkpoints", std::vector<int64_t>());
    state.agreed_step = json.value("agreed_step", int64_t{0});
    state.next_worker_number = json.at("next_worker_number");
    state.restarts = json.value("life", int64_t{0});
    state.finished = json.at("finished");
    state.failed = json.at("failed");
    for (const auto& [name, worker] : json.at("workers").items()) {
      state.workers[name] = DecodeWorker(worker);
    }
    for (const Json& release : json.value("releases", Json::array())) {
      state.releases.push_back({.incarnation = FromHex(release.at("incarnation")),
                                .reason = release.at("reason"),
                                .requeue = release.at("requeue")});
    }
    for (const Json& source : json.value("snapshots", Json::array())) {
      state.snapshots[source.at("generation")] = {
          .plan_json = source.at("plan"),
          .owners = source.at("owners").get<std::vector<int32_t>>(),
          .last_step = source.at("last_step")};
    }
    for (const Json& refused : json.value("refused", Json::array())) {
      state.refused.push_back({.holder = refused.at("holder"),
                               .generation = refused.at("generation"),
                               .step = refused.at("step"),
                               .receiver = refused.at("receiver")});
    }
    for (const Json& stretch : json.value("lineage", Json::array())) {
      state.lineage.push_back(DecodeStretch(stretch));
    }
    if (json.contains("held")) {
      state.held = DecodeGeneration(json.at("held"));
    }
    const Json grants = json.value("grants", Json::object());
    for (const auto& [hash, grant] : grants.items()) {
      state.admission.grants[hash] = {
          .names = grant.at("names"), .ends = grant.at("ends"), .uses_left = grant.at("uses_left")};
    }
    const Json revoked = json.value("revoked", Json::object());
    for (const auto& [worker, until] : revoked.items()) {
      state.admission.revoked[worker] = until;
    }
    return state;
  } catch (const std::exception& error) {
    return DataLossError("{}: not a coordinator's state: {}", where, error.what());
  }
}

}  // namespace heddle::elastic
