# Every target works with Go, git and make; race and lint need a C compiler, too. `make help` lists the targets.

FUZZTIME ?= 10s
ARGS =
N ?= 50
SERVERS =
SEED ?= 0
VERSION =
ONLY =
# What .ci/test has compiled is not compiled again.
RUN = CGO_ENABLED=0 go run -trimpath

.NOTPARALLEL:
.PHONY: help build vet demo test race cluster fuzz mutants torture matrix lint bench api vuln docs verify setup fmt release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-8s  %s\n", $$1, $$2 }' Makefile

build: ## compile every package of every module
	@.ci/each go build -o /dev/null ./...

vet: ## go vet of every module
	@.ci/each go vet ./...

demo: ## the shop under fire, both ways side by side (ARGS='--help' for its flags)
	@$(RUN) ./cmd/luatx demo $(ARGS)

test: found ## all tests but the long ones and those of make cluster; installs missing servers as root on Debian, unless SETUP=0
	@.ci/test -skip 'Cluster|/^cluster$$'

race: found ## all tests under the race detector; needs a C compiler
	@CGO_ENABLED=1 .ci/each go test -race ./...

cluster: found ## the tests of clusters, and on a cluster those that run on any server
	@.ci/test -run 'Cluster|/^cluster$$'

fuzz: ## every fuzz target for FUZZTIME (10s)
	@.ci/each "$$PWD/.ci/fuzz" $(FUZZTIME)

mutants: ## score the tests on a random sample of wrong edits (N=50 SEED=7 ONLY=internal/lua/settle.lua ARGS='-floor 0.9')
	@go run ./internal/mutants -n $(N) -seed $(SEED) -only "$(ONLY)" $(ARGS)

torture: ## break everything that can break, and judge what is left; see docs/reliability.md
	@cd torture && go run . $(ARGS)

matrix: ## the core on several servers in containers; writes docs/compatibility.md
	@cd matrix && LUATX_MATRIX=all LUATX_MATRIX_TABLE="$$PWD/../docs/compatibility.md" go test -count=1 -timeout 2h .

lint: ## formatting, go vet, golangci-lint and the prose; needs a C compiler
	@.ci/lint

bench: ## luatx beside what else does its work, into docs/measurements.md (ARGS=--short for 3 minutes)
	@cd bench && go run . $(ARGS)

api: ## what changed for callers since the latest release; what breaks them must stand in CHANGELOG.md
	@.ci/api

docs: ## the documentation site, into site/; follows its links
	@.ci/docs site
	@cd internal/site && GOWORK=off go test -count=1 . -site ../../site

vuln: ## known vulnerabilities of what is linked; needs the Go vulnerability database, vuln.go.dev
	@.ci/vuln

verify: race cluster fuzz api ## everything that takes longer than make test
	@go run ./internal/mutants -only promises -floor 1
	@go run ./internal/mutants -only internal/lua/ -n 20 -floor 0.9 -servers "$(SERVERS)"
	@go run ./internal/mutants -only go -n 20 -floor 0.85
	@LUATX_TEST_ACL=1 go test -count=1 ./test/... ./expiry ./inbox ./outbox ./relay ./repair ./stack ./stream
	@LUATX_VERIFY=1 .ci/each go test -count=1 -timeout 60m ./...

setup: ## fetch modules, servers to test with (Debian, Ubuntu), the linter, Vale and Hugo
	@.ci/each go list -deps -test ./... >/dev/null
	@SETUP=1 $(RUN) ./internal/test/redistest/found
	@SETUP=1 $(RUN) ./sqltx/sqltest/found
	@SETUP=1 $(RUN) ./contrib/amqp/internal/rabbit/found
	@.ci/linter >/dev/null
	@for module in internal/prose internal/site; do (cd $$module && GOWORK=off go list -deps -test ./... tool >/dev/null) || exit; done

fmt: ## format the Go files
	@linter=$$(.ci/linter) && .ci/each "$$linter" fmt --config "$$PWD/.golangci.yml"

release: ## tag VERSION (v0.1.0) of every module in this clone, if a user can fetch it; pushes nothing
	@go run ./internal/release $(VERSION)

clean: ## remove what the targets built
	@rm -rf bin site

.PHONY: found
found:
	@$(RUN) ./internal/test/redistest/found
	@$(RUN) ./sqltx/sqltest/found
	@$(RUN) ./contrib/amqp/internal/rabbit/found
