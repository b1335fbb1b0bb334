// A transport that the product does not have: a local socket's two streams. This folder is all that
// there is of it.
#include "comm/cost/transport_traits.h"

namespace heddle::comm {
namespace {

const DeclaredTransport declared(
    {.name = "toy", .title = "toy", .rank = 15, .within_host = true, .encrypts = true});

}  // namespace
}  // namespace heddle::comm
