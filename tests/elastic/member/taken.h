/// \file
/// The actions that a component of a Member put into its outbox, for tests.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "elastic/member/member_outbox.h"

namespace heddle::elastic {

/// The outbox of a worker that is connected and welcomed, and the actions taken from it.
class Taken {
 public:
  MemberOutbox& out() { return out_; }
  /// The actions added since the last call, as words: a message's kind, "act" for other actions.
  std::vector<std::string> Words() {
    actions_ = out_.Take();
    std::vector<std::string> words;
    for (const MemberAction& action : actions_) {
      const auto* send = std::get_if<SendToCoordinator>(&action);
      words.push_back(send == nullptr ? "act" : KindOf(send->message));
    }
    return words;
  }
  /// The first action of type T among those of the last Words(); nullopt: there is none.
  template <typename T>
  std::optional<T> Find() const {
    for (const MemberAction& action : actions_) {
      if (const T* found = std::get_if<T>(&action)) {
        return *found;
      }
    }
    return std::nullopt;
  }
  /// The first message among those of the last Words(); empty: there is none.
  wire::FromWorker Message() const {
    const auto send = Find<SendToCoordinator>();
    return send ? send->message : wire::FromWorker();
  }

 private:
  static std::string KindOf(const wire::FromWorker& message) {
    return message.GetDescriptor()->FindFieldByNumber(message.kind_case())->name();
  }

  MemberOutbox out_{true};
  std::vector<MemberAction> actions_;
};

}  // namespace heddle::elastic
