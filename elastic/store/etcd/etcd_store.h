/// \file
/// The facts of the coordinator that leads, in etcd. Included by etcd_election.cc only.
#pragma once

#include <memory>
#include <string>

#include "elastic/store/etcd/etcd_leadership.h"
#include "elastic/store/store.h"

namespace heddle::elastic {

/// `term` is what the store says of itself.
std::unique_ptr<StateStore> MakeEtcdStore(const std::string& prefix,
                                          StoreTerm term,
                                          std::unique_ptr<EtcdLeadership> leadership);

}  // namespace heddle::elastic
