#include "engine/runtime/exchange/group_calls.h"

#include <utility>

#include "base/check.h"

namespace heddle::runtime {

void GroupCalls::Begin(size_t key, Mark sent, std::function<Status()> call) {
  HEDDLE_CHECK(group_ != nullptr && !begun_.contains(key), "call {} cannot begin", key);
  begun_[key] = group_->Start(
      [this, sent = std::move(sent), call = std::move(call)] {
        const Status downloaded = WaitUnless(abandoned_, sent);
        if (!downloaded.ok()) {
          group_->Abort(downloaded);
          return downloaded;
        }
        return call();
      },
      urgent_);
}

Result<Time> GroupCalls::Await(size_t key) {
  const auto found = begun_.find(key);
  HEDDLE_CHECK(found != begun_.end(), "call {} has not begun", key);
  const comm::Work work = std::move(found->second);
  begun_.erase(found);
  HEDDLE_RETURN_IF_ERROR(work.Wait());
  return work.finished_at();
}

Status GroupCalls::Finish() {
  Status first;
  for (const auto& [key, work] : begun_) {
    const Status status = work.Wait();
    if (first.ok()) {
      first = status;
    }
  }
  begun_.clear();
  return first;
}

void GroupCalls::Abandon(const Status& reason) {
  if (group_ == nullptr) {
    return;
  }
  group_->Abort(reason);
  abandoned_.store(true);
  Finish().IgnoreError("the step has failed already");
  abandoned_.store(false);
}

}  // namespace heddle::runtime
