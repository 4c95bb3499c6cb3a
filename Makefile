# The short names of what one does here. Everything real is in CMake, tools/ and tests/.
JOBS ?= 2          # compilers at once; each may take 1.5 GiB
TEST_JOBS ?= 2     # tests at once
GROUP ?=           # make bench GROUP=store|daemon|engine
SOAK_ROUNDS ?= 20  # times that `make soak` repeats the tests which involve threads, processes and crashes; each is 25 kills

SOURCES = $(shell git ls-files '*.h' '*.cc' '*.cu')

.DEFAULT_GOAL := help
.PHONY: help packages model build test demo bench soak asan tsan clang cuda format format-check tidy clean

help:
	@echo "make demo    one long prompt: cold, from DRAM, from NVMe, after a crash, behind a second daemon, as another tenant"
	@echo "make test    build and test everything"
	@echo "make build   the release build only, in build/release"
	@echo "make bench GROUP=store|daemon|engine   measured figures against their goals"
	@echo "make soak    the concurrent, crash and process tests, SOAK_ROUNDS times"
	@echo "make asan | tsan | clang   tests under sanitizers; a clang build that checks lock annotations"
	@echo "make format | tidy | clean"

packages:
	@tools/setup/install-packages

# Prints the model's path last; see KVIST_MODEL in tools/setup/fetch-model.
model: packages
	@tools/setup/fetch-model

build: packages
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release --parallel $(JOBS)

test: build model
	@KVIST_MODEL="$$(tools/setup/fetch-model)" ctest --preset release --parallel $(TEST_JOBS)

demo: build model
	@tools/demo/demo --model "$$(tools/setup/fetch-model)"

# One program per group, bench/GROUP_bench.cc; each prints `figure ratio goal ok|short` and fails if one is short.
BENCH_GROUPS = $(patsubst bench/%_bench.cc,%,$(wildcard bench/*_bench.cc))

bench:
	@case " $(BENCH_GROUPS) " in *" $(or $(strip $(GROUP)),none) "*) ;; \
	  *) echo "make bench: GROUP='$(GROUP)' is not one of: $(BENCH_GROUPS)" >&2; exit 2 ;; esac
	@tools/setup/install-packages bench
	@cmake --preset bench --log-level=WARNING
	@cmake --build --preset bench --parallel $(JOBS) --target $(strip $(GROUP))_bench
	@KVIST_MODEL="$$(tools/setup/fetch-model)" build/bench/bench/$(strip $(GROUP))_bench

soak: build model
	@KVIST_SEED=random KVIST_MODEL="$$(tools/setup/fetch-model)" ctest --preset release --label-regex 'soak|crash|process|conformance' \
	  --repeat until-fail:$(strip $(SOAK_ROUNDS))

# What orders threads must itself be compiled for TSan to see it.
tsan: abseil-thread
.PHONY: abseil-thread
abseil-thread: packages
	@JOBS=$(JOBS) tools/setup/build-abseil thread

asan tsan: packages model
	@cmake --preset $@ --log-level=WARNING
	@cmake --build --preset $@ --parallel $(JOBS)
	@KVIST_MODEL="$$(tools/setup/fetch-model)" ctest --preset $@ --parallel $(TEST_JOBS)

clang:
	@tools/setup/install-packages lint
	@cmake --preset clang --log-level=WARNING
	@cmake --build --preset clang --parallel $(JOBS)

cuda: packages
	@cmake --preset cuda --log-level=WARNING
	@cmake --build --preset cuda --parallel $(JOBS)

format:
	@tools/setup/install-packages lint
	@clang-format -i $(SOURCES)

format-check:
	@tools/setup/install-packages lint
	@clang-format --dry-run --Werror $(SOURCES)

tidy: clang
	@git ls-files '*.cc' | grep -v '^\(tests\|bench\)/' | xargs -P $(JOBS) -n 4 clang-tidy --quiet -p build/clang

clean:
	@rm -rf build
