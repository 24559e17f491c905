# The targets run deploy/cmd/almoner.

SHELL := /bin/sh
# Use the installed Go; do not download another.
export GOTOOLCHAIN := local
OLDEST_GO := 1.26

.PHONY: help run test bench torture fuzz mutants screenshots generate sbom release program check-go

help:
	@echo 'make run             start Almoner with demo data on http://localhost:8080; Ctrl-C stops it'
	@echo 'make run PORT=9000   the same on ports 9000 to 9003'
	@echo 'make test            check and test everything'
	@echo 'make bench PART=p    measure speed, growth, soak, signin, events, submissions, cluster, citus, landed or usage, and write the results to e2e/bench/RESULTS.md'
	@echo 'make torture PART=p  run the long form of a suite, up to 40 minutes (e2e/torture/README.md)'
	@echo 'make fuzz TIME=30s   run every fuzz test for that time; ONLY=FuzzBearer selects by name (make test runs the seeds)'
	@echo 'make mutants PACKAGE=p TESTS=q,r   change a package (a folder) in one place at a time, and list the changes'
	@echo '                     that its tests miss, and those of the packages q and r'
	@echo 'make screenshots     write pictures of all pages to .almoner/screenshots'
	@echo 'make generate        regenerate the tables of settings and the licences'
	@echo 'make release VERSION=0.1.0   write programs, images, checksums and bills of materials to .almoner/release'
	@echo 'make sbom PROGRAM=p  print the bill of materials of a built program (CycloneDX)'
	@echo
	@echo 'Requires Linux and Go $(OLDEST_GO) or newer. On Debian and Ubuntu it installs PostgreSQL and Redis if they are missing.'

# As the services, without the workspace (stack.BuildModule) and with the same flags (stack.Flags), so that what they have
# in common is compiled once.
program: check-go
	@mkdir -p .almoner/bin && cd deploy && GOWORK=off CGO_ENABLED=0 go build -trimpath -tags=nopgxregisterdefaulttypes,grpcnotrace,nethttpomithttp2 -o ../.almoner/bin/almoner ./cmd/almoner

run: program
	@exec .almoner/bin/almoner run

test: program
	@exec .almoner/bin/almoner test

# PROFILE=1 writes profiles of the services to .almoner/profiles; SHORT=1 runs everything at a small scale.
bench: export PROFILE := $(PROFILE)
bench: export SHORT := $(SHORT)
bench: program
	@exec .almoner/bin/almoner bench '$(PART)'

torture: program
	@exec .almoner/bin/almoner torture '$(PART)'

fuzz: program
	@exec .almoner/bin/almoner fuzz '$(TIME)' '$(ONLY)'

mutants: program
	@exec .almoner/bin/almoner mutants '$(PACKAGE)' '$(TESTS)'

screenshots: program
	@exec .almoner/bin/almoner screenshots

generate: program
	@.almoner/bin/almoner generate
	@cd deploy/release && GOWORK=off go run . licences

sbom: check-go
	@cd deploy/release && GOWORK=off go run . sbom '$(abspath $(PROGRAM))'

release: check-go
	@cd deploy/release && GOWORK=off go run . build '$(VERSION)'

check-go:
	@command -v go >/dev/null || { echo 'almoner: Go $(OLDEST_GO) or newer is required, but go is not in PATH: see https://go.dev/dl/' >&2; exit 1; }
	@have=$$(cd / && go version | sed -n 's/^go version go\([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p'); \
	lowest=$$(printf '%s\n' '$(OLDEST_GO)' "$${have:-0}" | sort -V | head -n 1); \
	[ "$$lowest" = '$(OLDEST_GO)' ] || { echo "almoner: Go $(OLDEST_GO) or newer is required; the installed version is $${have:-unknown}: see https://go.dev/dl/" >&2; exit 1; }
