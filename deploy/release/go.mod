// What is written for a release: the bill of materials of a program, and the licences of all that is in the programs. A separate module, outside
// go.work: the product does not need its dependencies.
module github.com/almonerhq/almoner/deploy/release

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/almonerhq/almoner/shared v0.0.0
	github.com/almonerhq/almoner/shared/devkit v0.0.0
	github.com/google/go-containerregistry v0.22.1
	github.com/google/licenseclassifier/v2 v2.0.0
	github.com/google/uuid v1.6.0
	golang.org/x/crypto/x509roots/fallback v0.0.0-20261030153154-30a33513ff6d
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/sergi/go-diff v1.1.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
)

replace github.com/almonerhq/almoner/shared => ../../shared

replace github.com/almonerhq/almoner/shared/devkit => ../../shared/devkit
