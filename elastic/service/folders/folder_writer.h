/// \file
/// Writes to the folders of runs in a thread of its own: where storage stands still, what logs
/// events and lists workers goes on. A line waits in memory meanwhile, some hundred bytes an event.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/task_thread.h"
#include "elastic/control/log_event.h"
#include "elastic/service/folders/run_folder.h"

namespace heddle::elastic {

/// Thread: any. What was asked for happens in the order of the calls; the destructor waits for it.
class FolderWriter {
 public:
  /// The event of this moment.
  void Append(std::shared_ptr<RunFolder> folder, LogEvent event);
  /// Replaces a file of the folder by what `text` returns, on the writer's thread. What fails is
  /// told in the process's own log.
  void Replace(std::shared_ptr<RunFolder> folder,
               std::string name,
               std::function<Result<std::string>()> text);
  /// Waits, as long as storage takes, until what was asked for before has been tried.
  void Finish();
  /// Finish, then what was appended to the folder outlives the machine's end. Errors:
  /// EventLog::Sync.
  Status Sync(RunFolder& folder);

 private:
  TaskThread thread_{"folder", TaskThread::AtEnd::kFinish};
};

}  // namespace heddle::elastic
