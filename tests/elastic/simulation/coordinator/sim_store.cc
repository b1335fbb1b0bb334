#include "tests/elastic/simulation/coordinator/sim_store.h"

#include <utility>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {
namespace {

Status NotOurs() {
  return AbortedError("another coordinator owns the store");
}

}  // namespace

std::optional<DurableState> SimStore::Load() const {
  const bool forgets = cluster_.world.options().planted == Planted::kForgetGeneration;
  return forgets && !older_.empty() ? older_[older_.size() / 2] : state_;
}

void SimStore::Arrive(const DurableState& state) {
  const Planted planted = cluster_.world.options().planted;
  if (state_ && state.generation_counter < state_->generation_counter) {
    cluster_.world.Fail("the generation counter went backwards");
  }
  if (planted == Planted::kForgetGeneration) {
    older_.push_back(state);
  }
  const bool is_begun =
      state.held && (!state_ || !state_->held || state.held->number > state_->held->number);
  if ((!state_ || state.known_step > state_->known_step || is_begun) &&
      planted != Planted::kForgetLog) {
    cluster_.log.MakeDurable();
    cluster_.decisions.MakeDurable();
  }
  state_ = state;
  cluster_.ledger.NoteStored();
  cluster_.copies.NoteStored();
  cluster_.alterations.NoteStored();
}

// Most writes take no time, so that there is less to simulate.
void SimStore::Save(const CoordinatorProcess& writer,
                    const DurableState& state,
                    std::function<void(const Status&)> done) {
  World& world = cluster_.world;
  if (writer.fenced() && world.options().planted != Planted::kTwoOwners) {
    return world.After(0.1, 20, [done = std::move(done)] { done(NotOurs()); });
  }
  const bool fails = world.now() < fails_until_;
  if (!fails && !next_delay_ && world.random().Below(4) > 0) {
    Arrive(state);
    return done(Status::Ok());
  }
  writing_ = state;
  const auto finish = [this, fails, number = ++number_, done = std::move(done)] {
    if (!writing_ || number != number_) {
      return done(NotOurs());
    }
    const DurableState written = *std::exchange(writing_, std::nullopt);
    const bool arrives = !fails || cluster_.world.random().Below(3) == 0;
    if (arrives) {
      Arrive(written);
    }
    done(fails ? ResourceExhaustedError("no space is left on the disk") : Status::Ok());
  };
  if (const auto delay = std::exchange(next_delay_, std::nullopt)) {
    world.At(world.now() + *delay, finish);
  } else {
    world.After(0.1, 20, finish);
  }
}

void SimStore::EndProcess() {
  if (writing_) {
    const DurableState written = *std::exchange(writing_, std::nullopt);
    const bool arrives = cluster_.world.random().Below(2) == 0;
    cluster_.world.Count(arrives ? "a write arrives after its process" : "a write is lost");
    if (arrives) {
      Arrive(written);
    }
  }
  cluster_.ledger.ForgetUnstored();
  cluster_.copies.ForgetUnstored();
  cluster_.alterations.ForgetUnstored();
}

}  // namespace heddle::elastic
