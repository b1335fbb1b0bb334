#include "checkpoint/save/encode_window.h"

namespace heddle::checkpoint {

void EncodeWindow::Begin(int64_t tasks) {
  tasks_ = tasks;
  next_ = encoded_ = written_ = 0;
  ready_.fill(false);
}

int64_t EncodeWindow::Take() {
  ++active_;
  return next_++;
}

void EncodeWindow::Encoded(int64_t task) {
  ready_[SlotOf(task)] = true;
  ++encoded_;
  --active_;
}

void EncodeWindow::Written(int64_t task) {
  ready_[SlotOf(task)] = false;
  ++written_;
}

}  // namespace heddle::checkpoint
