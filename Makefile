# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

GO ?= go
STEP := scripts/step.sh
# eBPF needs root; nothing else runs with it.
ROOT := $(if $(filter-out 0,$(shell id -u)),sudo -E env PATH=$(PATH))
# What each package costs is logged; see test/support/times.
TIMES := $(CURDIR)/build/times
LOADS := $(CURDIR)/build/loads
AS_ROOT := -exec '$(TIMES) -log $(CURDIR)/build/times.jsonl $(ROOT)'

# go-nvml finds NVIDIA's library at run time: see operators/send/nvml. It needs cgo; names of hosts
# and users are looked up by Go, as in the programs of a release, so that both share what is compiled.
NVML := -tags nvml,netgo,osusergo
LAZY := -extldflags=-Wl,-z,lazy
# NVIDIA's header marks functions that go-nvml wraps as deprecated.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations

DEMO := cmd/ig-gpu/internal/demo/embedded
LAYOUTS := cmd/ig-gpu/internal/images/embedded
IMAGES := build/images/.built
# The same for amd64 and arm64, in place of this machine's architecture alone.
ALL_IMAGES := build/images/.built-all
DAEMON := build/daemon
GO_FILES := $(shell find cmd internal operators -name '*.go' -o -name '*.js' -o -name '*.html' -o -name '*.css' 2>/dev/null) go.mod go.sum
BPF_FILES := build.yaml $(shell find bpf gadgets wasm internal/stack internal/profile -type f ! -name "*_test.go" 2>/dev/null)

## build: compile the gadgets and bin/ig-gpu, with the gadgets inside
.PHONY: build
build: setup bin/ig-gpu

# go vet is part of make lint, which .ci/run runs first. Without cgo, packages are those of the kit's and
# the daemon's programs, and Go's own linker suffices; without a symbol table and DWARF, which panics do
# not need, it takes half as long.
GO_TEST := env CGO_ENABLED=0 $(GO) test -vet=off -ldflags='-s -w'

# The directory of the interpreter itself, to come first in PATH, where python3 is a script that looks
# for it, such as pyenv's: it takes half a second of processor time, and tests start hundreds of them.
PYTHON_FIRST = $$(python=$$(python3 -c 'import sys; print(sys.executable)'); \
	[ "$$python" = "$$(command -v python3)" ] || echo "$${python%/*}:")

## test: all tests but those that fetch much, the quick ones first; eBPF tests run as root
.PHONY: test
test: setup format $(TIMES)
	@rm -f build/times.jsonl
	@PATH="$(PYTHON_FIRST)$$PATH" $(TIMES) -log build/times.jsonl -name "make test" $(MAKE) --no-print-directory test-all

.PHONY: test-all
test-all: $(LOADS)
	@$(STEP) "fetch Debian's libcuda" test/support/fixtures/libcuda.sh
	@$(STEP) "fetch Debian's libamdhip64" test/support/fixtures/libamdhip.sh
	@if $(ROOT) $(LOADS); then exec $(MAKE) --no-print-directory test-here; \
	else exec $(MAKE) --no-print-directory test-elsewhere; fi

.PHONY: test-here
test-here: $(IMAGES) # tests load the objects that are compiled for these
	@$(STEP) "pure tests" $(GO_TEST) ./internal/... ./operators/... ./dashboards/... ./charts/... ./wasm/...
	@$(MAKE) --no-print-directory test-built
	@$(STEP) "tests of the tools" $(GO_TEST) -count=1 -p 1 $(AS_ROOT) ./cmd/...
	@$(STEP) "tests of the simulated driver" $(GO_TEST) -count=1 ./examples/...
	@echo "==> interpreters for the unwinder"
	@test/gadgets/unwind/pythons.sh | awk -F'\t' '{ print "    " $$1 ": " $$4 ", " $$3 }'
	@$(STEP) "eBPF tests, one package at a time" $(GO_TEST) -count=1 -p 1 -timeout 20m $(AS_ROOT) $(ALONE)
	@$(STEP) "end-to-end tests, two packages at a time" $(GO_TEST) -count=1 -p 2 -timeout 20m $(AS_ROOT) \
		$$($(GO) list ./test/... | grep -vE "$(SINGLE)")

# Suites that measure, or that see it when another traces the whole machine, run one at a time, and the pages
# of docs, whose commands have times: while an ig-gpu beside them ends, none attaches, for up to 15 s. The
# others mostly wait. Never more than two: Linux deadlocks where many programs are freed at once
# (internal/ig/stock.go).
SINGLE := /test/(gadgets|measure|product/docs|product/hostile|product/terminal|product/verbs|support/tracer)(/|$$)
ALONE = $$($(GO) list ./test/... | grep -E "$(SINGLE)" | grep -v "/test/gadgets/pytorch")

# What both ways to run the tests build and check.
.PHONY: test-built
test-built:
	@$(MAKE) --no-print-directory test-chart-suites
	@$(STEP) "tests of NVML" $(GO) test -vet=off $(NVML) -ldflags $(LAZY) ./operators/send/nvml
	@$(MAKE) --no-print-directory build simcuda gpu-kit

# On a machine whose kernel loads no eBPF programs, or no more (test/support/bpftest/loads): packages
# whose tests do are left out by name, and the product runs in a virtual machine, emulated.
.PHONY: test-elsewhere
test-elsewhere:
	@$(STEP) "pure tests" $(GO_TEST) $(call without-ebpf,./internal/... ./operators/... ./dashboards/... ./charts/... ./wasm/...)
	@$(MAKE) --no-print-directory test-built
	@$(STEP) "tests of the tools" $(GO_TEST) -count=1 -p 1 $(call without-ebpf,./cmd/...)
	@$(STEP) "tests of the simulated driver" $(GO_TEST) -count=1 ./examples/...
	@$(STEP) "tests of what tests use" $(GO_TEST) -count=1 $(call without-ebpf,./test/support/...)
	@$(MAKE) --no-print-directory test-kernels KERNELS=newest TESTS="Load Product Native"
	@echo "==> this kernel loads no eBPF programs: not run are test/gadgets, test/product, test/systems/stock and kit, and"
	@git grep -lE '$(LOADS_EBPF)' -- '*_test.go' ':!test' | xargs -n1 dirname | sort -u | sed 's/^/    /'

LOADS_EBPF := RequireRoot\(|"attaching needs root|loads eBPF programs"
without-ebpf = $$($(GO) list -f '{{.Dir}}' $(1) | grep -vxF "$$(git grep -lE '$(LOADS_EBPF)' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|$(CURDIR)/|')")

$(LOADS): $(wildcard test/support/bpftest/loads/*.go)
	@$(GO) build -buildvcs=false -o $@ ./test/support/bpftest/loads

$(TIMES): $(wildcard test/support/times/*.go)
	@$(GO) build -buildvcs=false -o $@ ./test/support/times

# Packages that know nothing of the kernel's eBPF: what runs in them runs side by side.
PURE := ./internal/collective/... ./internal/export/... ./internal/format/... ./internal/profile/... \
	./internal/stack/... ./internal/throttle/... ./internal/timeline/... ./internal/elf/...

## test-long: the tests that take long: pure packages with the race detector, fuzzing, FUZZTIME=20s a target, arm64, random suites
FUZZTIME ?= 20s
.PHONY: test-long
test-long: setup vet-others build/arm64/ig-gpu chart
	@$(STEP) "race detector" $(GO) test -race -timeout 30m $(PURE)
	@$(STEP) "fuzzing, $(FUZZTIME) a target" scripts/fuzz.sh $(FUZZTIME)
	@$(STEP) "fetch Debian's Prometheus" test/support/fixtures/prometheus.sh
	@$(STEP) "a thousand nodes" env LONG_TESTS=1 PROMETHEUS="$$(test/support/fixtures/prometheus.sh)" $(GO_TEST) -count=1 -timeout 20m ./test/product/scale
	@$(MAKE) --no-print-directory test-soak test-long-random

## test-soak: weeks in an hour, SOAK=1h; in test-long four minutes of them
SOAK ?= 4m
.PHONY: test-soak
test-soak: build simcuda
	@$(STEP) "processes that start and end, $(SOAK)" $(ROOT) env SOAK="$(SOAK)" $(GO_TEST) -v -count=1 -timeout 3h ./test/product/soak

# The suites that make fewer random calls in make test (subject.Volume).
.PHONY: test-long-random
test-long-random: build simcuda
	@$(STEP) "random suites, long" $(ROOT) env LONG_TESTS=1 $(GO_TEST) -count=1 -p 1 -timeout 60m \
		./test/gadgets/budget ./test/gadgets/exact ./test/gadgets/launches ./test/gadgets/native ./test/gadgets/spans \
		./test/gadgets/unwind ./test/product/hostile
	@$(STEP) "random calls through the product, long" $(ROOT) env LONG_TESTS=1 $(GO_TEST) -count=1 -run RandomCalls ./test/product/e2e

## test-times: the table of test/README.md, from the last make test
.PHONY: test-times
test-times: $(TIMES)
	@$(TIMES) -log build/times.jsonl -before test/support/times/before.jsonl -readme test/README.md

## demo: watch a leaking workload for ten seconds, without a GPU if need be
.PHONY: demo
demo: build simcuda
	@scripts/demo.sh

## test-kernels: the product on other kernels, KERNELS="6.1 6.12 newest 5.10", emulated
KERNELS ?= 6.1 6.12 newest 5.10
.PHONY: test-kernels
test-kernels: build simcuda $(if $(filter-out arm64-%,$(KERNELS)),$(DAEMON)/amd64/gpu-exporter) \
		$(if $(findstring arm64,$(KERNELS)),build/arm64/ig-gpu $(DAEMON)/arm64/gpu-exporter)
	@$(if $(filter-out arm64-%,$(KERNELS)),$(STEP) "build ig itself" test/systems/kernels/stock-ig.sh)
	@$(if $(findstring arm64,$(KERNELS)),$(STEP) "build for arm64" test/systems/kernels/arm64.sh)
	@$(STEP) "Linux $(KERNELS)" $(ROOT) env KERNELS="$(KERNELS)" $(GO) test -v -count=1 -timeout 6h ./test/systems/kernels

## test-kernels-suites: whole suites there, SUITES="gadgets/exact gadgets/launches" KERNELS=6.12 [RUN=TestName]
.PHONY: test-kernels-suites
test-kernels-suites: build simcuda
	@$(STEP) "$(SUITES) on Linux $(KERNELS)" $(ROOT) env KERNELS="$(KERNELS)" SUITES="$(SUITES)" RUN="$(RUN)" \
		$(GO) test -v -count=1 -timeout 6h -run TestSuites ./test/systems/kernels

## test-arm64: the product on an arm64 processor, emulated
.PHONY: test-arm64
test-arm64:
	@$(MAKE) --no-print-directory test-kernels KERNELS=arm64-6.1
	@$(STEP) "py_stack on arm64" $(ROOT) env KERNELS=arm64-6.1 $(GO) test -v -count=1 -run Kernels ./test/gadgets/pystack

## test-k8s: docs/guides/kubernetes.md on a Kubernetes node, emulated; SOAK=30m, CAPABILITIES=1, TESTS="RecordingIsDeleted Daemon Soak"
.PHONY: test-k8s
test-k8s: KERNELS := 6.1
test-k8s: build simcuda chart build/daemon/amd64/gadgettracermanager build/k8s/bin/kubernetes
	@$(STEP) "fetch the node's programs" test/systems/k8s/fetch.sh
	@$(STEP) "fetch Linux $(KERNELS)" $(ROOT) test/support/vm/fetch.sh $(KERNELS)
	@$(STEP) "build Inspektor Gadget's daemon" test/systems/k8s/stock/build.sh
	@$(STEP) "build the pause container" env CGO_ENABLED=0 $(GO) build -ldflags "-s -w" -o build/k8s/pause ./test/systems/k8s/pause
	@$(STEP) "Kubernetes" $(ROOT) env K8S=1 KERNEL="$(KERNELS)" $(GO) test -v -count=1 -timeout 90m -run Kubernetes ./test/systems/k8s

## test-k8s-views: metrics by namespace, with a real API server and two shards of gpu-exporter; no node
.PHONY: test-k8s-views
test-k8s-views: chart build/k8s/bin/kubernetes
	@$(STEP) "views with a real API server" $(ROOT) env K8S=1 $(GO) test -v -count=1 -timeout 20m -run Views ./test/systems/k8s

# Its programs compare versions, and know theirs by the linker's flags only.
KUBERNETES := 1.34.4
build/k8s/bin/kubernetes: $(wildcard test/systems/k8s/programs/*)
	@$(STEP) "build Kubernetes $(KUBERNETES), 8 minutes of processor time" $(GO) build -C test/systems/k8s/programs -buildvcs=false \
		-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$(KUBERNETES)" -o $(CURDIR)/$@ .
	@for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet registry; do \
		ln -sf kubernetes build/k8s/bin/$$name; done

## test-nccl: nccl_trace and the real libnccl and librccl of Debian's suites, and two versions of NCCL built from source, also below real PyTorch, fetched (2.2 GB); no GPU is needed
.PHONY: test-nccl
NCCL_VERSIONS ?= 2.22.3 2.28.9
test-nccl: setup build simcuda
	@$(STEP) "fetch Debian's libnccl" test/support/fixtures/libnccl.sh
	@$(STEP) "fetch Debian's librccl" test/support/fixtures/librccl.sh
	@$(STEP) "the real libnccl" $(ROOT) env NCCL_LIBRARIES="$$(test/support/fixtures/libnccl.sh)" \
		$(GO) test -v -count=1 -run Real ./test/gadgets/nccl
	@$(STEP) "fetch PyTorch for CUDA" test/support/fixtures/torch.sh
	@for v in $(NCCL_VERSIONS); do $(MAKE) --no-print-directory test-nccl-own VERSION=$$v || exit; done

.PHONY: test-nccl-own
test-nccl-own:
	@$(STEP) "build NCCL $(VERSION) for the simulated driver" test/support/fixtures/nccl.sh $(VERSION)
	@$(STEP) "the memory of NCCL's own code" $(ROOT) env NCCL_HOST="$$(test/support/fixtures/nccl.sh $(VERSION))" \
		$(GO) test -v -count=1 -run RealNCCLHolds ./test/gadgets/nccl
	@$(STEP) "hangs of NCCL's own code" $(ROOT) env NCCL_HOST="$$(test/support/fixtures/nccl.sh $(VERSION))" \
		$(GO) test -v -count=1 -run OwnCode ./test/product/hangs

## test-torch: real PyTorch without a GPU, fetched (550 MB), and the real libc10 of three versions (160 MB); CUDA=1: what libc10_cuda calls, too (480 MB)
.PHONY: test-torch
test-torch: build simcuda
	@$(STEP) "fetch PyTorch for CUDA" test/support/fixtures/torch.sh
	@$(STEP) "fetch libc10 of three versions" test/support/fixtures/libtorch.sh
	@$(STEP) "the real PyTorch" $(ROOT) env PYTORCH_REQUIRED=1 $(GO) test -count=1 -parallel 3 -timeout 30m ./test/gadgets/pytorch
	@$(STEP) "the real libc10" $(ROOT) env TORCH_LIBRARIES="$$(test/support/fixtures/libtorch.sh | tr '\n' ' ')" \
		$(GO) test -v -count=1 -run RealTorch ./test/gadgets/exact

## test-prometheus: the dashboards' queries and the alerts, on a real Prometheus
.PHONY: test-prometheus
test-prometheus: setup
	@$(STEP) "fetch Debian's Prometheus" test/support/fixtures/prometheus.sh
	@$(STEP) "queries and alerts" $(GO) test -tags prometheus -count=1 ./test/systems/prometheus

## chart: the Helm chart with what it depends on, build/charts/gpu-gadgets-VERSION.tgz
.PHONY: chart
chart: setup build/tools/helm
	@scripts/chart.sh build/tools/helm

## test-chart: the Helm chart, with Helm itself, helm-unittest and kubeconform
.PHONY: test-chart
test-chart: chart build/tools/helm-unittest build/tools/kubeconform
	@$(STEP) "schemas of Kubernetes" test/support/fixtures/kubernetes-schemas.sh
	@$(STEP) "the chart" $(GO) test -C test/systems/helm -tags checkers -count=1 .

# Without Helm and the schemas, which are 100 MB to download: part of make test.
.PHONY: test-chart-suites
test-chart-suites: build/tools/helm-unittest
	@scripts/chart.sh >/dev/null
	@$(STEP) "the chart's suites" build/tools/helm-unittest build/charts/gpu-gadgets

# Charts have modules of their own, with the versions of these tools.
build/tools/helm: test/systems/helm/go.mod test/systems/helm/go.sum
	@$(STEP) "build Helm" $(GO) build -C test/systems/helm -o $(CURDIR)/$@ helm.sh/helm/v3/cmd/helm

build/tools/helm-unittest: test/systems/helm/checks/go.mod test/systems/helm/checks/go.sum
	@$(STEP) "build helm-unittest" $(GO) build -C test/systems/helm/checks -o $(CURDIR)/$@ github.com/helm-unittest/helm-unittest/cmd/helm-unittest

build/tools/kubeconform: test/systems/helm/checks/go.mod test/systems/helm/checks/go.sum
	@$(STEP) "build kubeconform" $(GO) build -C test/systems/helm/checks -o $(CURDIR)/$@ github.com/yannh/kubeconform/cmd/kubeconform

## test-python: the unwinder with the CPythons of other Debian suites and of uv, fetched
.PHONY: test-python
test-python: setup
	@$(STEP) "fetch interpreters" $(ROOT) test/gadgets/unwind/pythons.sh all
	@echo "==> the unwinder; all that is said: build/python.log"
	@$(ROOT) env PYTHONS=$(CURDIR)/build/python/list $(GO) test -v -count=1 -timeout 60m ./test/gadgets/unwind 2>&1 | \
		tee build/python.log | \
		grep --line-buffered -oE 'tested: .*|Test[^ ]*: [0-9]+ of [0-9]+ samples exact|[0-9]+ of .* differ|^ok.*|^FAIL.*|^panic.*|--- FAIL.*'

## test-backends: what real servers have stored; builds them once, up to 30 minutes
.PHONY: test-backends
test-backends: build simcuda $(TIMES) build/backends/pyroscope build/backends/collector
	@$(STEP) "fetch Debian's Prometheus" test/support/fixtures/prometheus.sh
	@$(STEP) "real backends" env BACKENDS=1 $(GO) test -v -count=1 -timeout 40m $(AS_ROOT) ./test/systems/backends

## pyroscope: a Pyroscope on loopback, port 4040, until Ctrl-C; built first
.PHONY: pyroscope
pyroscope: setup build/backends/pyroscope
	@scripts/pyroscope.sh build/backends/pyroscope

build/backends/pyroscope: test/systems/backends/pyroscope/go.mod test/systems/backends/pyroscope/go.sum
	@$(STEP) "build Pyroscope itself" $(GO) build -C test/systems/backends/pyroscope -tags netgo -ldflags "-s -w" -o $(CURDIR)/$@ github.com/grafana/pyroscope/cmd/pyroscope

build/backends/collector: $(wildcard test/systems/backends/collector/*.go test/systems/backends/collector/go.* test/systems/backends/collector/statusutil/*)
	@$(STEP) "build OpenTelemetry's Collector" $(GO) build -C test/systems/backends/collector -ldflags "-s -w" -o $(CURDIR)/$@ .

## bench: what a traced call costs, and what ig-gpu itself uses
.PHONY: bench
bench: build simcuda
	@$(STEP) "benchmarks" $(ROOT) $(GO) run ./test/measure/bench
	@$(STEP) "benchmarks of exporting" $(GO) test -run none -bench . ./internal/export/... ./operators/send/export/...
	@$(STEP) "ten minutes of a timeline" $(GO) test -run none -bench . -benchtime 1x ./internal/timeline/trace

## compare: py_stack beside austin (and py-spy, where it is in PATH), six minutes
.PHONY: compare
compare: build
	@$(STEP) "comparison" $(ROOT) $(GO) run ./test/measure/compare

## gpu-kit: build/gpu-kit, a directory to copy to a machine with a GPU, where ./run.sh settles what is not known without one
.PHONY: gpu-kit
gpu-kit: setup build/gpu-kit-ig-gpu
	@$(STEP) "build the kit" env CGO_ENABLED=0 $(GO) build -buildvcs=false -ldflags "-s -w" -o build/gpu-kit/gpu-kit ./cmd/gpu-kit
	@$(MAKE) --no-print-directory -s -C cmd/gpu-kit/workload
	@$(GO) run ./cmd/gpu-kit/pack

# Static, so that it runs with any libc; without cgo there is no NVML in it.
build/gpu-kit-ig-gpu: $(IMAGES) $(GO_FILES)
	@$(STEP) "build ig-gpu for the kit" env CGO_ENABLED=0 $(GO) build -buildvcs=false -ldflags "-s -w" -o $@ ./cmd/ig-gpu

## lint: gofmt, go vet, shellcheck and clang-format
.PHONY: lint format vet
lint: format vet
	@$(STEP) "scripts and C" scripts/lint.sh

## golangci: golangci-lint with .golangci.yaml; built first, which takes 6 minutes of processor time
.PHONY: golangci
golangci: build/tools/golangci-lint
	@$(STEP) "golangci-lint" build/tools/golangci-lint run

# A module of its own, with the linters' versions.
build/tools/golangci-lint: scripts/lint/go.mod scripts/lint/go.sum
	@$(STEP) "build golangci-lint" $(GO) build -C scripts/lint -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

format:
	@unformatted=$$(gofmt -l $(wildcard charts cmd internal operators test examples dashboards wasm)); \
	if [ -n "$$unformatted" ]; then echo "gofmt -w is due for:" $$unformatted >&2; exit 1; fi

vet: setup
	@$(STEP) "go vet" $(GO) vet ./...
	@$(STEP) "go vet for WASM" env GOOS=wasip1 GOARCH=wasm $(GO) vet ./wasm/...

# Compiles all dependencies for another processor: minutes, on a new machine.
.PHONY: vet-others
vet-others:
	@$(STEP) "go vet for arm64" env GOARCH=arm64 $(GO) vet ./...

## clean: remove everything that was built
.PHONY: clean
clean:
	rm -rf bin build demo-out
	find $(LAYOUTS) $(DEMO) -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +

## help: this list
.PHONY: help
help:
	@echo "gpu-gadgets: which line of Python holds the GPU's memory"
	@sed -n 's/^## \([a-z-]*\): /  make \1\t/p' Makefile | expand -t 16

# Installs missing tools; silent when there are none.
.PHONY: setup
setup:
	@scripts/setup.sh

.PHONY: simcuda
simcuda:
	@if [ -f examples/simcuda/Makefile ]; then $(MAKE) --no-print-directory -s -C examples/simcuda; fi
	@$(MAKE) --no-print-directory -s -C examples/simnccl
	@$(MAKE) --no-print-directory -s -C examples/simtorch
	@$(MAKE) --no-print-directory -s -C examples/simcudart
	@$(MAKE) --no-print-directory -s -C examples/simcupti
	@$(MAKE) --no-print-directory -s -C examples/otel
	@if [ "$$(uname -m)" = x86_64 ]; then $(MAKE) --no-print-directory -s -C examples/simhip; fi

build/gadget-images: $(wildcard cmd/gadget-images/*.go cmd/internal/ocilayout/*.go cmd/internal/ociregistry/*.go internal/elf/compiled/*.go) go.mod go.sum
	@$(STEP) "build the image builder" $(GO) build -buildvcs=false -o $@ ./cmd/gadget-images

$(IMAGES): build/gadget-images $(BPF_FILES)
	@$(STEP) "compile the gadgets" build/gadget-images -architectures native -layouts $(LAYOUTS)
	@touch $@

$(ALL_IMAGES): build/gadget-images $(BPF_FILES)
	@$(STEP) "compile the gadgets for all architectures" build/gadget-images -layouts $(LAYOUTS)
	@touch $(IMAGES) $@

# What `ig-gpu demo` runs: the simulated driver and a workload of this architecture, and the
# example in Python.
DEMO_FILES := $(wildcard examples/simcuda/*.[ch]) $(wildcard examples/demo/*) examples/inference/inference.py examples/inference/cuda.py
build/demo/.embedded: $(DEMO_FILES) bpf/memory/apis.h bpf/launch/apis.h $(wildcard bpf/cuda/*.h)
	@$(MAKE) --no-print-directory -s -C examples/simcuda
	@$(MAKE) --no-print-directory -s -C examples/demo
	@arch=$$($(GO) env GOHOSTARCH); mkdir -p $(DEMO)/$$arch $(DEMO)/python; \
	cp -f build/simcuda/libcuda.so.1 build/demo/workload $(DEMO)/$$arch/; \
	cp -f examples/inference/inference.py examples/inference/cuda.py $(DEMO)/python/
	@touch $@

# The first build compiles Inspektor Gadget and takes minutes, later ones seconds.
bin/ig-gpu: $(IMAGES) build/demo/.embedded $(GO_FILES)
	@$(STEP) "build $@" $(GO) build -buildvcs=false $(NVML) -ldflags "-s -w $(LAZY)" -o $@ ./cmd/ig-gpu

## images: the gadgets' images for amd64 and arm64, pushed with REGISTRY=host/name [TAG=latest] [PLAIN_HTTP=1]
.PHONY: images
images: setup build/gadget-images
	@$(STEP) "build the images" build/gadget-images -layouts $(LAYOUTS) \
		$(if $(REGISTRY),-push $(REGISTRY) $(if $(TAG),-tag $(TAG)) $(if $(PLAIN_HTTP),-plain-http))
	@touch $(IMAGES) $(ALL_IMAGES)
	@cat build/images/digests.yaml

## daemon: Inspektor Gadget's daemon with our operators, and the exporter, for both architectures
.PHONY: daemon
daemon: setup $(foreach arch,amd64 arm64,$(DAEMON)/$(arch)/gadgettracermanager $(DAEMON)/$(arch)/gpu-exporter)

## daemon-image: push Inspektor Gadget's image with our daemon, REGISTRY=host/name [TAG=latest] [BASE=…] [PLAIN_HTTP=1]
.PHONY: daemon-image
daemon-image: daemon
	@test -n "$(REGISTRY)" || { echo "daemon-image: say where to push it, REGISTRY=host/name" >&2; exit 1; }
	@$(STEP) "push the daemon's image" $(GO) run ./cmd/program-images -to $(REGISTRY)/ig-gpu-daemon:$(or $(TAG),latest) \
		$(if $(BASE),-base $(BASE)) $(if $(PLAIN_HTTP),-plain-http)

# Inspektor Gadget's image has no libc, so there is no cgo, and no NVML.
$(DAEMON)/%/gadgettracermanager: $(GO_FILES)
	@$(STEP) "build $@" env CGO_ENABLED=0 GOARCH=$* $(GO) build -buildvcs=false -ldflags "-s -w" -o $@ ./cmd/ig-gpu-daemon

$(DAEMON)/%/gpu-exporter: $(GO_FILES)
	@$(STEP) "build $@" env CGO_ENABLED=0 GOARCH=$* $(GO) build -buildvcs=false -ldflags "-s -w" -o $@ ./cmd/gpu-exporter

## release: build/release, what would be published: VERSION=v0.1.0 [KEY=cosign.key] [DAEMON_BASE=IMAGE] [PROGRAM_BASE=IMAGE]; publishes nothing
.PHONY: release
release: setup build/gadget-images build/tools/helm
	@test -n "$(VERSION)" || { echo "release: say which version, VERSION=v0.1.0" >&2; exit 1; }
	@scripts/release.sh "$(VERSION)" build/release "$(KEY)"
	@touch -d @0 $(IMAGES) $(ALL_IMAGES) build/demo/.embedded 2>/dev/null || true # its images and demo are inside; a build makes its own

## test-release: builds a release twice, compares, and installs it on bare Debian and Ubuntu; 20 minutes the first time
.PHONY: test-release
test-release: setup build/gadget-images build/tools/helm
	@$(STEP) "bare roots" $(ROOT) test/support/fixtures/roots.sh
	@$(STEP) "the release" $(ROOT) env RELEASE=1 $(GO) test -v -count=1 -timeout 60m ./test/systems/release

# For test-kernels on arm64; test-long notices a break.
build/arm64/ig-gpu: $(ALL_IMAGES) $(GO_FILES)
	@$(STEP) "build $@" env GOARCH=arm64 $(GO) build -buildvcs=false -ldflags "-s -w" -o $@ ./cmd/ig-gpu
