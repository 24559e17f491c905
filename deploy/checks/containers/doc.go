// Package containers tests the container deployment without an engine. It parses the Dockerfile and the compose file
// with the libraries of Docker and Compose, and runs the programs as these files say, in a root directory with the
// contents of the image.
package containers
