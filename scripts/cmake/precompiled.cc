// The one source of a target that precompiles headers for others (HeddleModule.cmake).
