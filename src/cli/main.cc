#include "cli/options.h"

int main(int argc, char** argv) { return ibid::cli::main(argc, argv); }
