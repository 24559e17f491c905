# What to type. The work itself is in deploy/cmd/almoner.

SHELL := /bin/sh
# The Go that is installed is used as it is: no other one is downloaded.
export GOTOOLCHAIN := local
OLDEST_GO := 1.26

.PHONY: help run test bench torture fuzz generate sbom check-go

help:
	@echo 'make run             start Almoner with demo data on http://localhost:8080; Ctrl-C stops it'
	@echo 'make run PORT=9000   the same on ports 9000, 9001 and 9002'
	@echo 'make test            check and test everything'
	@echo 'make bench PART=p    measure speed, floor, growth, soak, startup or cluster, into e2e/bench/RESULTS.md'
	@echo 'make torture PART=p  the long form of a suite, up to 40 minutes (e2e/torture/README.md)'
	@echo 'make fuzz TIME=30s   every fuzz test, each for that time; their seeds are part of make test. ONLY=FuzzBearer: those that it matches'
	@echo 'make generate        write anew what follows from the code: the tables of settings, the licences'
	@echo 'make sbom PROGRAM=p  the bill of materials of a built program, on standard output (CycloneDX)'
	@echo
	@echo 'Needs Linux and Go $(OLDEST_GO). PostgreSQL and Redis are installed when they are missing (Debian, Ubuntu).'

run: check-go
	@mkdir -p .almoner/bin && go build -o .almoner/bin/almoner ./deploy/cmd/almoner
	@exec .almoner/bin/almoner run

test: check-go
	@mkdir -p .almoner/bin && go build -o .almoner/bin/almoner ./deploy/cmd/almoner
	@exec .almoner/bin/almoner test

# PROFILE=1 leaves profiles of the services in .almoner/profiles; SHORT=1 tries everything at a small scale.
bench: export PROFILE := $(PROFILE)
bench: export SHORT := $(SHORT)
bench: check-go
	@mkdir -p .almoner/bin && go build -o .almoner/bin/almoner ./deploy/cmd/almoner
	@exec .almoner/bin/almoner bench '$(PART)'

torture: check-go
	@mkdir -p .almoner/bin && go build -o .almoner/bin/almoner ./deploy/cmd/almoner
	@exec .almoner/bin/almoner torture '$(PART)'

fuzz: check-go
	@mkdir -p .almoner/bin && go build -o .almoner/bin/almoner ./deploy/cmd/almoner
	@exec .almoner/bin/almoner fuzz '$(TIME)' '$(ONLY)'

generate: check-go
	@cd deploy && go run ./cmd/almoner generate
	@cd deploy/release && GOWORK=off go run . licences

sbom: check-go
	@cd deploy/release && GOWORK=off go run . sbom '$(abspath $(PROGRAM))'

check-go:
	@command -v go >/dev/null || { echo 'almoner: Go $(OLDEST_GO) or newer is needed, and there is no go in PATH: see https://go.dev/dl/' >&2; exit 1; }
	@have=$$(cd / && go version | sed -n 's/^go version go\([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p'); \
	lowest=$$(printf '%s\n' '$(OLDEST_GO)' "$${have:-0}" | sort -V | head -n 1); \
	[ "$$lowest" = '$(OLDEST_GO)' ] || { echo "almoner: Go $(OLDEST_GO) or newer is needed; this one is $${have:-of an unknown version}: see https://go.dev/dl/" >&2; exit 1; }
