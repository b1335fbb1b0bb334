#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/system/file.h"
#include "base/system/unique_fd.h"
#include "elastic/store/encoded_state.h"
#include "elastic/store/store.h"

namespace heddle::elastic {
namespace {

// "HDDL": tells our file from any other SQLite file.
constexpr int kApplicationId = 0x4844444c;

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
                      kApplicationId, kStateVersion));
    }
    if (application != kApplicationId) {
      return DataLossError("{}: a SQLite file, but not a coordinator's", path_);
    }
    if (version != kStateVersion) {
      return DataLossError("{}: version {} of the coordinator's state, this build reads version {}",
                           path_, version, kStateVersion);
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
    HEDDLE_ASSIGN_OR_RETURN(DurableState state, DecodeState(text == nullptr ? "" : text, path_));
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
    const std::string text = EncodeState(state);
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

Status CheckSqlitePath(const std::string& path) {
  constexpr size_t kJournalBytes = 8;  // "-journal", which it puts behind.
  const size_t most = static_cast<size_t>(sqlite3_vfs_find(nullptr)->mxPathname) - kJournalBytes;
  HEDDLE_ASSIGN_OR_RETURN(const std::string absolute, AbsolutePath(path));
  return absolute.size() <= most
             ? Status::Ok()
             : InvalidArgumentError("{}: the path has {} bytes, and SQLite takes {}", absolute,
                                    absolute.size(), most);
}

Result<std::unique_ptr<StateStore>> OpenSqliteStore(const std::string& path) {
  HEDDLE_RETURN_IF_ERROR(CheckSqlitePath(path));
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
