#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/system/file.h"
#include "base/system/unique_fd.h"
#include "elastic/store/store.h"

namespace heddle::elastic {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
// "HDDL": tells our file from any other SQLite file.
constexpr int kApplicationId = 0x4844444c;

// ---- The state as JSON ----

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

std::string Encode(const DurableState& state) {
  Json json = {{"job_id", state.job_id},
               {"job_yaml", state.job_yaml},
               {"secret", ToHex(state.secret)},
               {"output_folder", state.output_folder},
               {"known_step", state.known_step},
               {"checkpoints", state.checkpoints},
               {"given_up_checkpoints", state.given_up_checkpoints},
               {"next_worker_number", state.next_worker_number},
               {"life", state.life},
               {"finished", state.finished},
               {"failed", state.failed},
               {"workers", Json::object()}};
  for (const auto& [name, worker] : state.workers) {
    json["workers"][name] = {{"incarnation", ToHex(worker.incarnation)},
                             {"host", worker.host},
                             {"profile", worker.profile_json},
                             {"failure_domain", worker.failure_domain}};
  }
  for (const auto& [generation, source] : state.snapshots) {
    json["snapshots"].push_back({{"generation", generation},
                                 {"plan", source.plan_json},
                                 {"owners", source.owners},
                                 {"last_step", source.last_step}});
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
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<DurableState> Decode(const std::string& text, const std::string& path) {
  try {
    const Json json = Json::parse(text);
    DurableState state;
    state.job_id = json.at("job_id");
    state.job_yaml = json.at("job_yaml");
    state.secret = FromHex(json.at("secret"));
    state.output_folder = json.at("output_folder");
    state.known_step = json.at("known_step");
    state.checkpoints = json.at("checkpoints").get<std::vector<int64_t>>();
    state.given_up_checkpoints = json.value("given_up_checkpoints", std::vector<int64_t>());
    state.next_worker_number = json.at("next_worker_number");
    state.life = json.value("life", int64_t{0});
    state.finished = json.at("finished");
    state.failed = json.at("failed");
    for (const auto& [name, worker] : json.at("workers").items()) {
      state.workers[name] = {FromHex(worker.at("incarnation")), worker.at("host"),
                             worker.at("profile"), worker.value("failure_domain", std::string())};
    }
    for (const Json& source : json.value("snapshots", Json::array())) {
      state.snapshots[source.at("generation")] = {
          .plan_json = source.at("plan"),
          .owners = source.at("owners").get<std::vector<int32_t>>(),
          .last_step = source.at("last_step")};
    }
    if (json.contains("held")) {
      const Json& held = json.at("held");
      state.held.emplace();
      state.held->number = held.at("number");
      state.held->plan = DecodePlan(held.at("plan"));
      for (const auto& [name, incarnation] : held.at("members").items()) {
        state.held->members[name] = FromHex(incarnation);
      }
    }
    return state;
  } catch (const std::exception& error) {
    return DataLossError("{}: not a coordinator's state: {}", path, error.what());
  }
}

// ---- SQLite ----

Status SqliteError(int code, sqlite3* database, const std::string& what) {
  const std::string text =
      what + ": " + (database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code));
  switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return {StatusCode::kResourceExhausted, text};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {StatusCode::kFailedPrecondition, text};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {StatusCode::kDataLoss, text};
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return {StatusCode::kPermissionDenied, text};
    default:
      return {StatusCode::kInternal, text};
  }
}

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

class SqliteStore : public StateStore {
 public:
  SqliteStore(std::string path, UniqueFd lock, Database database)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        database_(std::move(database)) {}

  Status Open() {
    HEDDLE_RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
    HEDDLE_RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
    HEDDLE_ASSIGN_OR_RETURN(const int64_t application, Number("PRAGMA application_id"));
    HEDDLE_ASSIGN_OR_RETURN(const int64_t version, Number("PRAGMA user_version"));
    HEDDLE_ASSIGN_OR_RETURN(const int64_t tables, Number("SELECT count(*) FROM sqlite_master"));
    if (tables == 0) {
      return Execute(
          fmt::format("BEGIN IMMEDIATE;"
                      "CREATE TABLE coordinator (id INTEGER PRIMARY KEY CHECK (id = 1),"
                      " generation_counter INTEGER NOT NULL, state TEXT NOT NULL);"
                      "PRAGMA application_id={}; PRAGMA user_version={}; COMMIT",
                      kApplicationId, kVersion));
    }
    if (application != kApplicationId) {
      return DataLossError("{}: a SQLite file, but not a coordinator's", path_);
    }
    if (version != kVersion) {
      return DataLossError("{}: version {} of the coordinator's state, this build reads version {}",
                           path_, version, kVersion);
    }
    return Status::Ok();
  }

  Result<std::optional<DurableState>> Load() override {
    HEDDLE_ASSIGN_OR_RETURN(
        const Statement select,
        Prepare("SELECT generation_counter, state FROM coordinator WHERE id = 1"));
    const int code = sqlite3_step(select.get());
    if (code == SQLITE_DONE) {
      return std::optional<DurableState>();
    }
    if (code != SQLITE_ROW) {
      return SqliteError(code, database_.get(), "read " + path_);
    }
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(select.get(), 1));
    HEDDLE_ASSIGN_OR_RETURN(DurableState state, Decode(text == nullptr ? "" : text, path_));
    state.generation_counter = sqlite3_column_int64(select.get(), 0);
    return std::optional<DurableState>(std::move(state));
  }

  Status Save(const DurableState& state) override {
    // One statement is one transaction; the condition fences a second writer out.
    HEDDLE_ASSIGN_OR_RETURN(
        const Statement upsert,
        Prepare("INSERT INTO coordinator (id, generation_counter, state) VALUES (1, ?1, ?2) "
                "ON CONFLICT (id) DO UPDATE SET generation_counter = ?1, state = ?2 "
                "WHERE generation_counter <= ?1"));
    const std::string text = Encode(state);
    sqlite3_bind_int64(upsert.get(), 1, state.generation_counter);
    sqlite3_bind_text64(upsert.get(), 2, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
    const int code = sqlite3_step(upsert.get());
    if (code != SQLITE_DONE) {
      return SqliteError(code, database_.get(), "write " + path_);
    }
    if (sqlite3_changes(database_.get()) != 1) {
      return AbortedError(
          "{}: generation {} is below the one stored: another coordinator has written", path_,
          state.generation_counter);
    }
    return Status::Ok();
  }

 private:
  Status Execute(const std::string& sql) {
    const int code = sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr);
    return code == SQLITE_OK ? Status::Ok() : SqliteError(code, database_.get(), path_);
  }

  Result<Statement> Prepare(const std::string& sql) {
    sqlite3_stmt* raw = nullptr;
    const int code = sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &raw, nullptr);
    Statement statement(raw);
    if (code != SQLITE_OK) {
      return SqliteError(code, database_.get(), path_);
    }
    return statement;
  }

  Result<int64_t> Number(const std::string& sql) {
    HEDDLE_ASSIGN_OR_RETURN(const Statement statement, Prepare(sql));
    const int code = sqlite3_step(statement.get());
    if (code != SQLITE_ROW) {
      return SqliteError(code, database_.get(), path_);
    }
    return int64_t{sqlite3_column_int64(statement.get(), 0)};
  }

  const std::string path_;
  const UniqueFd lock_;
  const Database database_;
};

}  // namespace

Result<std::unique_ptr<StateStore>> OpenSqliteStore(const std::string& path) {
  HEDDLE_RETURN_IF_ERROR(MakeFolders(FolderOf(path)));
  const std::string lock_path = path + ".lock";
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) {
    return ErrnoError(errno, "open " + lock_path);
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return FailedPreconditionError("{}: another coordinator has it open", path);
  }
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  Database database(raw);
  if (code != SQLITE_OK) {
    return SqliteError(code, raw, "open " + path);
  }
  // It holds the job's secret.
  if (::chmod(path.c_str(), 0600) != 0) {
    return ErrnoError(errno, "chmod " + path);
  }
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, 2000);
  auto store = std::make_unique<SqliteStore>(path, std::move(lock), std::move(database));
  HEDDLE_RETURN_IF_ERROR(store->Open());
  return std::unique_ptr<StateStore>(std::move(store));
}

}  // namespace heddle::elastic
