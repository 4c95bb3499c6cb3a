// write_tiny_gguf FILE [CONTEXT]: the tests' tiny model as a file, for tests that run the real programs.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/engine/tiny_gguf.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: write_tiny_gguf FILE [CONTEXT]\n");
    return 2;
  }
  kvist::engine::TinyGgufOptions options;
  if (argc > 2) options.context = static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10));
  const absl::Status status = kvist::engine::WriteTinyGguf(argv[1], options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "write_tiny_gguf: %s\n", std::string(status.message()).c_str());
  return 1;
}
