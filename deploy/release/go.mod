// What is written for a release: the bill of materials of a program, and the licences of all that is in the programs. A separate module, outside
// go.work: the product does not need its dependencies.
module github.com/almonerhq/almoner/deploy/release

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/almonerhq/almoner/shared v0.0.0
	github.com/google/licenseclassifier/v2 v2.0.0
	github.com/google/uuid v1.6.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/sergi/go-diff v1.1.0 // indirect
)

replace github.com/almonerhq/almoner/shared => ../../shared

replace github.com/almonerhq/almoner/shared/devkit => ../../shared/devkit
