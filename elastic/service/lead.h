/// \file
/// Waiting for leadership: of several coordinators with one store, one leads and the others are
/// standbys.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "elastic/identity/credentials.h"
#include "elastic/service/progress.h"
#include "elastic/store/store.h"

namespace heddle::elastic {

/// The HOST:PORT that other machines are given for a coordinator that listens at `listen`; empty if
/// that is a wildcard address (0.0.0.0, ::), which other machines cannot use.
std::string AddressForOthers(const std::string& listen);

/// Serves as a standby at `listen`, in which a port of 0 is replaced by the real one, until this
/// coordinator leads. Returns the store of the new leader, or null if `asked_to_end` was true
/// before. `progress` reports which coordinator leads. `credentials`: as in
/// CoordinatorServerOptions. Errors that may pass, such as an etcd that does not answer, are waited
/// out. Errors: kInvalidArgument (`store`), kResourceExhausted (port taken), kUnauthenticated,
/// kPermissionDenied, those of reading files.
Result<std::unique_ptr<StateStore>> WaitToLead(const std::string& store,
                                               const Credentials& credentials,
                                               std::string& listen,
                                               Progress& progress,
                                               const std::function<bool()>& asked_to_end);

}  // namespace heddle::elastic
