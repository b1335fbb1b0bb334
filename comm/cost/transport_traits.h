/// \file
/// The declared transports and their properties. Each transport declares itself in
/// comm/transport/NAME/declaration.cc. Every program that links comm/cost contains these
/// declarations, whether it can open the transport (comm/transport/registry.h) or only reads job
/// files and link tables. Code outside a transport's folder does not use its name, but the
/// properties here. Thread: any, once main runs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace heddle::comm {

/// An option of a transport, set when an endpoint is created.
struct TransportOption {
  std::string name;
  std::string flag = {};  ///< Flag of the worker's command line; empty: set by programs only.
  std::string help = {};  ///< Help text of the flag.
};

struct TransportTraits {
  std::string name;   ///< Name in job files, addresses, link tables and metrics.
  std::string title;  ///< Name in texts for users.
  /// Order of preference: the lowest is tried first. Ranks are unique.
  int rank = 0;
  /// The transport joins only workers of one host, through the host's memory.
  bool within_host = false;
  /// The transport joins any two workers: every worker has it, and it is assumed where nothing is
  /// known.
  bool universal = false;
  /// Many machines do not have the transport; an endpoint can be created without it.
  bool optional = false;
  /// Traffic cannot be read on the network if a job asks for TLS: the transport encrypts it, or it
  /// never leaves the machine. Such a job uses no other transports.
  bool encrypts = false;
  /// Connections pass descriptors (DescriptorPassing), so that members of a group can share memory.
  bool passes_descriptors = false;
  std::vector<TransportOption> options = {};
};

/// Declares a transport; a constant of this type is defined at namespace scope.
class DeclaredTransport {
 public:
  explicit DeclaredTransport(TransportTraits traits);
};

/// All declared transports, best first, whether or not this build and machine have them. (MPI joins
/// static groups only: comm/mpi/world.h.)
std::span<const TransportTraits> DeclaredTransports();
/// Names of all declared transports, best first.
std::vector<std::string> TransportNames();
/// The transport of this name; null: there is none. Valid for the program's life.
const TransportTraits* FindTransport(std::string_view name);
/// Name of the best universal transport; empty: the program has no transports.
std::string UniversalTransport();

/// Checks transport names. Errors: kInvalidArgument, which names an unknown or repeated transport.
Status CheckTransportNames(std::span<const std::string> names);

}  // namespace heddle::comm
