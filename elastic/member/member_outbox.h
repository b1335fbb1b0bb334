/// \file
/// Collects the actions of the event that is being handled, in order.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/message.h>

#include "elastic/member/member.h"

namespace heddle::elastic {

/// The actions of one event. Thread: one caller at a time.
class MemberOutbox {
 public:
  /// `open`: the stream is up and the coordinator has welcomed this worker on it.
  explicit MemberOutbox(bool open) : open_(open) {}
  /// Notes a Welcome: messages are sent from now on.
  void Open() { open_ = true; }

  void Add(MemberAction action) { actions_.push_back(std::move(action)); }
  /// Sends `message`, one of the kinds of FromWorker, to the coordinator. Drops it unless open:
  /// what matters is resent after the next Welcome.
  void Send(const google::protobuf::Message& message);
  template <typename Message>
  void Send(const std::optional<Message>& message) {
    if (message) {
      Send(*message);
    }
  }
  /// Ends the process; no event is handled afterwards.
  void Exit(int code, std::string reason);
  /// Ends this incarnation of the worker and begins another one; no event is handled afterwards.
  void BeginAnew(std::string reason);
  /// Tells the coordinator that this worker leaves at once and why, then ends the process.
  void LeaveAtOnce(const std::string& reason, int code);
  /// True after Exit, BeginAnew or LeaveAtOnce.
  bool exits() const { return exits_; }

  /// Returns the collected actions and forgets them.
  std::vector<MemberAction> Take() { return std::exchange(actions_, {}); }

 private:
  bool open_;
  bool exits_ = false;
  std::vector<MemberAction> actions_;
};

}  // namespace heddle::elastic
