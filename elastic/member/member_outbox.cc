#include "elastic/member/member_outbox.h"

#include "base/check.h"

namespace heddle::elastic {

void MemberOutbox::Send(const google::protobuf::Message& message) {
  if (!open_) {
    return;
  }
  SendToCoordinator action;
  const google::protobuf::Descriptor& wrapper = *action.message.GetDescriptor();
  for (int i = 0; i < wrapper.field_count(); ++i) {
    if (wrapper.field(i)->message_type() == message.GetDescriptor()) {
      action.message.GetReflection()
          ->MutableMessage(&action.message, wrapper.field(i))
          ->CopyFrom(message);
      return Add(std::move(action));
    }
  }
  HEDDLE_CHECK(false, "no message of a worker");
}

void MemberOutbox::Exit(int code, std::string reason) {
  exits_ = true;
  Add(ExitWorker{.code = code, .reason = std::move(reason)});
}

void MemberOutbox::BeginAnew(std::string reason) {
  exits_ = true;
  Add(ExitWorker{.code = 1, .reason = std::move(reason), .begins_anew = true});
}

void MemberOutbox::LeaveAtOnce(const std::string& reason, int code) {
  wire::Leaving message;
  message.set_reason(reason);
  message.set_at_once(true);
  Send(message);
  Exit(code, reason);
}

}  // namespace heddle::elastic
