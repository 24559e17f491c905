package migrate

import (
	"fmt"
	"slices"
	"strings"
)

// A Version is the number and the name of a migration.
type Version struct {
	Number int64
	Name   string
}

// A State is how a database differs from what a program needs.
type State struct {
	Missing []string // migrations that the program has and the database has not
	Newer   []int64  // numbers of migrations that the database has and the program does not know
}

// Compare compares what a program knows with what a database has.
func Compare(known []Version, applied []int64) State {
	var s State
	for _, version := range known {
		if !slices.Contains(applied, version.Number) {
			s.Missing = append(s.Missing, version.Name)
		}
	}
	for _, number := range applied {
		if !slices.ContainsFunc(known, func(v Version) bool { return v.Number == number }) {
			s.Newer = append(s.Newer, number)
		}
	}
	return s
}

// Add combines the states of two sets of migrations.
func (s State) Add(other State) State {
	return State{slices.Concat(s.Missing, other.Missing), slices.Concat(s.Newer, other.Newer)}
}

// Exit statuses of `migrate --check`. 0 is up to date; 1 and 2 are other failures.
const (
	StatusMissing = 3
	StatusNewer   = 4
)

// A Difference is the error of a schema that differs from what the program needs.
type Difference struct{ State }

func (d Difference) Error() string {
	if len(d.Missing) > 0 {
		return fmt.Sprintf("migrations are missing: %s; run migrate", strings.Join(d.Missing, ", "))
	}
	return "the database is newer than this program: it has the unknown migrations " +
		strings.Trim(fmt.Sprint(d.Newer), "[]")
}

// ExitStatus returns the exit status for scripts.
func (d Difference) ExitStatus() int {
	if len(d.Missing) > 0 {
		return StatusMissing
	}
	return StatusNewer
}

// Err returns nil if nothing differs, or a Difference.
func (s State) Err() error {
	if len(s.Missing)+len(s.Newer) == 0 {
		return nil
	}
	return Difference{s}
}
