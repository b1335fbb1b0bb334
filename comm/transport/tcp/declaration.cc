// TCP, as others know it.
#include "comm/cost/transport_traits.h"

namespace heddle::comm {
namespace {

const DeclaredTransport kDeclared({.name = "tcp",
                                   .title = "TCP",
                                   .rank = 30,
                                   .universal = true,
                                   .encrypts = true,
                                   .options = {{.name = "streams"}}});

}  // namespace
}  // namespace heddle::comm
