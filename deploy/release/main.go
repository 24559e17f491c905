// Command release writes releases and their documents: build VERSION writes programs, images, bills of materials,
// checksums and the files of deploy to .almoner/release/VERSION (make release); sbom PROGRAM writes the bill of
// materials of a built program to standard output (CycloneDX 1.6, JSON); licences rewrites deploy/LICENCES.md and
// deploy/LICENCES.txt (make generate).
//
// It makes images with go-containerregistry, the library of ko and crane, without a daemon or a network. ko is not
// used, because it would pull a base image.
//
// cyclonedx-gomod (1.10.0) cannot replace the first: in a program built as the images are, it names our module
// shared "../shared", at version "(devel)". go-licenses (2.0.1) cannot replace the second: its report has neither
// NOTICE files, which the Apache licence requires, nor PATENTS files, does not recognise MIT-0, and looks addresses
// up on the network.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "sbom":
		return writeBill(os.Stdout, arguments[1])
	case len(arguments) == 2 && arguments[0] == "build":
		root, err := findRoot()
		if err != nil {
			return err
		}
		return writeRelease(context.Background(), root, arguments[1])
	case slices.Equal(arguments, []string{"licences"}):
		root, err := findRoot()
		if err != nil {
			return err
		}
		return writeLicences(root)
	}
	return errors.New("usage: release build VERSION | release sbom PROGRAM | release licences")
}

// findRoot returns the directory at or above the working directory that holds go.work.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run this in the repository: there is no go.work here or in a directory above")
		}
	}
}
