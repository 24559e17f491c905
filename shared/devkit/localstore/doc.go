// Package localstore answers: where do a private PostgreSQL and a private Redis come from?
//
// `make run` and the tests each start servers of their own: on loopback, on free ports, with random passwords and
// everything they write in one directory. Nothing that runs already on the machine is touched, and nothing started
// here outlives the program that started it (package child).
//
// PostgreSQL refuses to run as root. When this program is root, both servers run as an unprivileged user, who comes to
// own the directory and must be able to reach it: see Reachable and TempDir.
package localstore
