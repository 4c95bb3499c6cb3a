// Figures of the store, each a ratio taken in one run, in which both sides alternate. Medians are compared; for the
// device, whose speed drifts, it is the median of the ratios of neighbouring rounds. bench/store/*_bench.cc says what
// each figure is.
// Usage: store_bench [DIRECTORY on the device to measure; default /var/tmp]. Exits non-zero if a goal is missed.
#include "bench/store/support.h"

int main(int argc, char** argv) {
  kvist::bench::Figures figures;
  const kvist::bench::ScratchDirectory scratch(argc > 1 ? argv[1] : "/var/tmp");
  kvist::bench::MatchFigures(scratch.path(), figures);
  kvist::bench::DramFigures(scratch.path(), figures);
  kvist::bench::DeviceFigures(scratch.path(), figures);
  kvist::bench::IndexFigures(scratch.path(), figures);
  return figures.Report();
}
