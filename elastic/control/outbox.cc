#include "elastic/control/outbox.h"

namespace heddle::elastic {

void Outbox::Log(std::string kind, std::vector<std::pair<std::string, LogEvent::Value>> fields) {
  Add(WriteLog{LogEvent{std::move(kind), std::move(fields)}});
}

void Outbox::Persist() {
  Add(elastic::Persist{facts_()});
}

void Outbox::Wrap(const wire::Welcome& message, wire::ToWorker& out) {
  *out.mutable_welcome() = message;
}
void Outbox::Wrap(const wire::Refused& message, wire::ToWorker& out) {
  *out.mutable_refused() = message;
}
void Outbox::Wrap(const wire::Profile& message, wire::ToWorker& out) {
  *out.mutable_profile() = message;
}
void Outbox::Wrap(const wire::Prepare& message, wire::ToWorker& out) {
  *out.mutable_prepare() = message;
}
void Outbox::Wrap(const wire::Stop& message, wire::ToWorker& out) {
  *out.mutable_stop() = message;
}
void Outbox::Wrap(const wire::Halt& message, wire::ToWorker& out) {
  *out.mutable_halt() = message;
}
void Outbox::Wrap(const wire::Start& message, wire::ToWorker& out) {
  *out.mutable_start() = message;
}
void Outbox::Wrap(const wire::Go& message, wire::ToWorker& out) {
  *out.mutable_go() = message;
}
void Outbox::Wrap(const wire::Emulation& message, wire::ToWorker& out) {
  *out.mutable_emulate() = message;
}
void Outbox::Wrap(const wire::Alive& message, wire::ToWorker& out) {
  *out.mutable_alive() = message;
}
void Outbox::Wrap(const wire::Release& message, wire::ToWorker& out) {
  *out.mutable_release() = message;
}
void Outbox::Wrap(const wire::Abandon& message, wire::ToWorker& out) {
  *out.mutable_abandon() = message;
}
void Outbox::Wrap(const wire::MeasureLinks& message, wire::ToWorker& out) {
  *out.mutable_measure_links() = message;
}
void Outbox::Wrap(const wire::Save& message, wire::ToWorker& out) {
  *out.mutable_save() = message;
}
void Outbox::Wrap(const wire::Stay& message, wire::ToWorker& out) {
  *out.mutable_stay() = message;
}

}  // namespace heddle::elastic
