/// \file
/// Writes to the folders of runs on a thread of its own, so that the event loop goes on while
/// storage hangs. Events wait in memory meanwhile, some hundred bytes each.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/task_thread.h"
#include "elastic/control/log_event.h"
#include "elastic/service/folders/run_folder.h"

namespace heddle::elastic {

/// Performs its calls in their order on its thread; the destructor waits for all of them. Thread:
/// any.
class FolderWriter {
 public:
  /// Appends an event to the folder's log, with the time of this call.
  void Append(std::shared_ptr<RunFolder> folder, LogEvent event);
  /// Replaces a file of the folder by what `text` returns; `text` is called on the writer's thread.
  /// Errors are logged in the process's own log.
  void Replace(std::shared_ptr<RunFolder> folder,
               std::string name,
               std::function<Result<std::string>()> text);
  /// Waits until all earlier calls have been performed, however long storage takes.
  void Finish();
  /// Finishes, then syncs the folder's log. Errors: those of EventLog::Sync.
  Status Sync(RunFolder& folder);

 private:
  TaskThread thread_{"folder", TaskThread::AtEnd::kFinish};
};

}  // namespace heddle::elastic
