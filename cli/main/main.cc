#include "cli/command.h"

int main(int argc, char** argv) { return heddle::cli::Main(argc, argv); }
