# The two commands of the project, and a few for its developers. `make run` and `make test` prepare a bare Debian or
# Ubuntu machine themselves.
#
#   make run                          chat with a small real model (downloaded once)
#   make run PROMPT="Why is it so?"   one answer
#   make run MODEL=path               with a .gguf file or a Hugging Face directory of yours
#   make test                         build everything and run all tests
#   make asan                         the tests again under AddressSanitizer and UBSan
#   make fuzz                         each fuzzer for a minute
#   make all-archs                    kernels for every card, of both makers (build-cuda-all, build-hip-all)
#   make lines                        lines of code a room
#   make format, make tidy            clang-format, clang-tidy
#   make clean                        remove the build folders

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
JOBS := $(shell nproc 2>/dev/null || echo 2)

# Taken as they were typed: make would expand a dollar sign in a question.
override PROMPT := $(value PROMPT)
override MODEL := $(value MODEL)
export PROMPT MODEL

.PHONY: run test asan fuzz all-archs lines format tidy clean
.DEFAULT_GOAL := run

# All but the answer goes to standard error, so that the answer can be piped.
# The same build folder serves `make test`: going back and forth compiles nothing twice. (A .ci/run that was killed leaves it
# for another device.)
run:
	@bash tools/setup.sh run
	@grep -qs 'VLLM_DEFAULT_DEVICE:STRING=cpu$$' build/CMakeCache.txt && [ -f build/build.ninja ] || cmake --preset cpu >&2
	@cmake --build build --target apps -j $(JOBS) >&2
	@model=$$MODEL; [ -n "$$model" ] || model=$$(bash tools/fetch_model.sh smollm2); \
	if [ -n "$$PROMPT" ]; then \
	  exec build/examples/vllm-cli --model "$$model" --prompt "$$PROMPT"; \
	elif [ -t 0 ] && [ -t 1 ]; then \
	  exec build/examples/vllm-cli --model "$$model"; \
	else \
	  exec build/examples/vllm-cli --model "$$model" --prompt "Which city is the capital of France?"; \
	fi

# Tests that need a real model are skipped, and say so, where it cannot be had.
test:
	@bash tools/setup.sh test
	@cmake --preset cpu
	@cmake --build build -j $(JOBS)
	@for model in smollm2 gemma3-270m; do \
	  bash tools/fetch_model.sh $$model || echo "make test: going on without $$model: its tests will be skipped" >&2; \
	done
	@bash tools/fetch_openai.sh || echo "make test: going on without the openai package: its test will be skipped" >&2
	@bash tools/fetch_minilm.sh || echo "make test: going on without all-MiniLM-L6-v2: its test will be skipped" >&2
	@bash tools/count_lines.sh
	@ctest --test-dir build -j $(JOBS) --output-on-failure --no-tests=error

asan:
	@bash tools/setup.sh test
	@cmake --preset asan
	@cmake --build build-asan -j $(JOBS)
	@UBSAN_OPTIONS=print_stacktrace=1 ctest --test-dir build-asan -j $(JOBS) --output-on-failure --no-tests=error

fuzz:
	@bash tools/setup.sh fuzz
	@bash tools/run_fuzzers.sh

# Kernels alone, which is what differs from card to card; target vt_cuda or vt_rocm in the same folder makes the module.
all-archs:
	@bash tools/setup.sh rocm
	@if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then \
	  cmake --preset cuda -B build-cuda-all '-DVLLM_CUDA_ARCHS=80;90a;100a;120a;ptx80' -DVLLM_BUILD_TESTS=OFF && \
	  cmake --build build-cuda-all -j $(JOBS) --target cuda_code; \
	else echo "make all-archs: no nvcc: kernels for NVIDIA cards are left out" >&2; fi
	@cmake --preset rocm -B build-hip-all '-DVLLM_HIP_ARCHS=gfx90a;gfx942;gfx1100;gfx1200;gfx1201' -DVLLM_BUILD_TESTS=OFF
	@cmake --build build-hip-all -j $(JOBS) --target rocm_code

lines:
	@bash tools/count_lines.sh

format:
	@git ls-files '*.h' '*.cc' '*.cu' | xargs clang-format -i

tidy:
	@[ -f build/build.ninja ] || cmake --preset cpu
	@git ls-files 'src/*.cc' 'apps/*.cc' | xargs -P $(JOBS) -n 4 clang-tidy -p build --quiet

clean:
	@rm -rf build build-*
