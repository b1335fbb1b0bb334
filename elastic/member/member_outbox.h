/// \file
/// What the event that is being handled makes the worker do, in order.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/message.h>

#include "elastic/member/member.h"

namespace heddle::elastic {

/// Thread: one caller at a time.
class MemberOutbox {
 public:
  /// `open`: the stream is up and the coordinator has welcomed this worker.
  explicit MemberOutbox(bool open) : open_(open) {}
  void Open() { open_ = true; }

  void Add(MemberAction action) { actions_.push_back(std::move(action)); }
  /// `message` is one of those that FromWorker wraps. Dropped unless open: whoever has to be heard
  /// says it again after the next Welcome.
  void Say(const google::protobuf::Message& message);
  template <typename Message>
  void Say(const std::optional<Message>& message) {
    if (message) {
      Say(*message);
    }
  }
  /// The process ends; nothing is handled after this event.
  void Exit(int code, std::string reason);
  /// Likewise, and begins anew.
  void BeginAnew(std::string reason);
  /// The same, for a reason of this worker's own, which is said first.
  void LeaveAtOnce(const std::string& reason, int code);
  bool exits() const { return exits_; }

  std::vector<MemberAction> Take() { return std::exchange(actions_, {}); }

 private:
  bool open_;
  bool exits_ = false;
  std::vector<MemberAction> actions_;
};

}  // namespace heddle::elastic
