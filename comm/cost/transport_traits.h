/// \file
/// What transports there are, as data. Each declares itself in comm/transport/NAME/declaration.cc,
/// and to be linked is to be declared: every program that links comm/cost has them all, whether it
/// can open them (comm/transport/registry.h) or only reads job files and link tables. Nothing
/// outside a transport's folder knows its name; what matters to others is a property here.
/// Thread: any, once main runs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace heddle::comm {

/// What a transport takes from whoever makes an endpoint.
struct TransportOption {
  std::string name;
  std::string flag = {};  ///< Of the worker's command line; empty: programs alone set it.
  std::string help = {};  ///< Of the flag.
};

struct TransportTraits {
  std::string name;   ///< In job files, addresses, link tables and metrics.
  std::string title;  ///< For people.
  /// Where it stands by preference: the lowest is tried first. No two have the same.
  int rank = 0;
  /// Joins workers of one host only, through the host's memory.
  bool within_host = false;
  /// Joins any two workers: every worker has it, and it is what is assumed where nothing is known.
  bool universal = false;
  /// Machines without it are usual, and an endpoint is made there all the same.
  bool optional = false;
  /// Nobody on the network can read it where a job asks for TLS: it encrypts then, or never leaves
  /// the machine. Others are not used by such a job.
  bool encrypts = false;
  /// Its connections pass descriptors (DescriptorPassing), so that members of a group can share
  /// memory.
  bool passes_descriptors = false;
  std::vector<TransportOption> options = {};
};

/// A declaration: a constant of this type at namespace scope.
class DeclaredTransport {
 public:
  explicit DeclaredTransport(TransportTraits traits);
};

/// All that join pairs of workers, best first, whether this build and machine have them or not.
/// (MPI joins static groups only: comm/mpi/world.h.)
std::span<const TransportTraits> DeclaredTransports();
std::vector<std::string> TransportNames();
/// Null: there is none of this name. Valid for the program's life.
const TransportTraits* FindTransport(std::string_view name);
/// The best of the universal ones; empty: a program without transports.
std::string UniversalTransport();

/// Errors: kInvalidArgument names what is no transport, or stands there twice.
Status CheckTransportNames(std::span<const std::string> names);

}  // namespace heddle::comm
