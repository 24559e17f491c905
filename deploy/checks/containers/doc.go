// Package containers tries what runs Almoner in containers, without an engine: the Dockerfile and the compose file are
// read by the libraries of those who run them; what they say is done is done, by the programs themselves, in a root
// directory that holds what the image would.
package containers
