#include "elastic/store/ordered_store.h"

namespace heddle::elastic {

Result<std::optional<DurableState>> OrderedStore::Load() {
  Result<std::optional<DurableState>> stored = store_->Load();
  if (stored.ok() && *stored) {
    Note(**stored);
  }
  return stored;
}

void OrderedStore::Note(const DurableState& state) {
  known_step_ = state.known_step;
  generation_ = state.held ? state.held->number : 0;
}

Status OrderedStore::Save(const DurableState& state) {
  if (state.known_step > known_step_ || (state.held && state.held->number > generation_)) {
    if (const Status synced = sync_log_(); !synced.ok()) {
      return UnavailableError("{}",
                              synced.message());  // Whatever it is: the facts are not at fault.
    }
  }
  HEDDLE_RETURN_IF_ERROR(store_->Save(state));
  Note(state);
  return Status::Ok();
}

}  // namespace heddle::elastic
