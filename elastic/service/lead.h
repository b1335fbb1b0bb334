/// \file
/// Several coordinators of one store: one leads, the others stand by.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "elastic/identity/credentials.h"
#include "elastic/service/progress.h"
#include "elastic/store/store.h"

namespace heddle::elastic {

/// HOST:PORT that others are told to reach a coordinator at which listens there; empty where that
/// is any address of the machine, because others know it by another.
std::string AddressForOthers(const std::string& listen);

/// Stands by at `listen`, which gets the port in place of 0, until this coordinator leads; says
/// whom it waits for. `credentials`: the coordinator's, as CoordinatorServerOptions has them. Null:
/// `asked_to_end` came first. What passes, an etcd that does not answer above all, is waited for.
/// Errors: kInvalidArgument (`store`), kResourceExhausted (port taken), kUnauthenticated,
/// kPermissionDenied, those of reading files.
Result<std::unique_ptr<StateStore>> WaitToLead(const std::string& store,
                                               const Credentials& credentials,
                                               std::string& listen,
                                               Progress& progress,
                                               const std::function<bool()>& asked_to_end);

}  // namespace heddle::elastic
