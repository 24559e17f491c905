// Package localstore starts private PostgreSQL and Redis servers for `make run` and the tests.
//
// The servers listen on loopback, on free ports, with random passwords, and write only to one directory.
// Servers that already run on the machine are not touched, and no server outlives the program that started it
// (package child).
//
// PostgreSQL refuses to run as root. If this program is root, both servers run as an unprivileged user, who
// becomes the owner of the directory and must be able to reach it: see Reachable and TempDir.
package localstore
