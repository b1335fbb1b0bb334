#include "elastic/service/folders/folder_writer.h"

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"

namespace heddle::elastic {
namespace {

// The most that a missed wake-up can cost.
constexpr Duration kLookAgain = std::chrono::milliseconds(200);

struct Turn {
  Mutex mutex;
  CondVar changed;
  bool has_come HEDDLE_GUARDED_BY(mutex) = false;
};

}  // namespace

void FolderWriter::Append(std::shared_ptr<RunFolder> folder, LogEvent event) {
  thread_.Post([folder = std::move(folder), event = std::move(event), time = WallClockSeconds()] {
    folder->events().Append(event, time);
  });
}

void FolderWriter::Replace(std::shared_ptr<RunFolder> folder,
                           std::string name,
                           std::function<Result<std::string>()> text) {
  thread_.Post([folder = std::move(folder), name = std::move(name), text = std::move(text)] {
    const Result<std::string> made = text();
    const Status written = made.ok() ? folder->Replace(name, *made) : made.status();
    if (!written.ok()) {
      LogWarning("{}: {}", name, written.message());
    }
  });
}

void FolderWriter::Finish() {
  const auto turn = std::make_shared<Turn>();
  thread_.Post([turn] {
    {
      const MutexLock lock(turn->mutex);
      turn->has_come = true;
    }
    turn->changed.NotifyAll();
  });
  const MutexLock lock(turn->mutex);
  while (!turn->has_come) {
    turn->changed.WaitUntil(turn->mutex, After(kLookAgain));
  }
}

Status FolderWriter::Sync(RunFolder& folder) {
  Finish();
  return folder.events().Sync();
}

}  // namespace heddle::elastic
