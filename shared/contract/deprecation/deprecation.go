// Package deprecation announces the operations of the API that will be removed, in the headers of their responses.
//
// Both services have the same table. TestTable_MatchesDescription in shared/contract/openapi compares it with the
// description.
package deprecation

import (
	"fmt"
	"net/http"
	"time"
)

// Notice is the shortest time between the first day of a notice and the day of the removal.
const Notice = 180 * 24 * time.Hour

// An Operation is a deprecated operation.
type Operation struct {
	Method string // in capitals
	Path   string // with {names} for parameters, as in the description
	Since  time.Time
	Sunset time.Time // the operation may be removed from this time on: at least Notice after Since
	Link   string    // URL of a page that says what to use instead
}

// A Table lists deprecated operations.
type Table []Operation

// All returns the deprecated operations of this version.
func All() Table { return nil }

// Announce sets the headers of a response to an operation: Deprecation (RFC 9745), Sunset (RFC 8594) and Link, if it is
// deprecated. path is the pattern of the route. HEAD counts as GET.
func (t Table) Announce(h http.Header, method, path string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, one := range t {
		if one.Method != method || one.Path != path {
			continue
		}
		h.Set("Deprecation", fmt.Sprintf("@%d", one.Since.Unix()))
		h.Set("Sunset", one.Sunset.UTC().Format(http.TimeFormat))
		h.Add("Link", "<"+one.Link+`>; rel="deprecation"; type="text/html"`)
	}
}
