/// \file
/// The store of the leading coordinator's state in etcd. Included by etcd_election.cc only.
#pragma once

#include <memory>
#include <string>

#include "elastic/store/etcd/etcd_leadership.h"
#include "elastic/store/store.h"

namespace heddle::elastic {

/// Makes the store below `prefix`, which the leadership owns. `term`: what StateStore::term
/// returns.
std::unique_ptr<StateStore> MakeEtcdStore(const std::string& prefix,
                                          StoreTerm term,
                                          std::unique_ptr<EtcdLeadership> leadership);

}  // namespace heddle::elastic
