/// \file
/// What a worker says of itself when it connects.
#pragma once

#include "elastic/member/member.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// Returns a Hello with what `identity` says; what the worker holds and does is not in it.
wire::Hello HelloOf(const MemberIdentity& identity);

}  // namespace heddle::elastic
