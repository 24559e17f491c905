package list

import (
	"github.com/almonerhq/almoner/shared/listquery"

	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
)

// Page sizes of every list (spec 8).
const (
	DefaultLimit = listquery.DefaultLimit
	MaxLimit     = listquery.MaxLimit
)

// ReadParameters returns the named parameters of a query string and the problems with them.
func ReadParameters(raw string, names ...string) (map[string]string, invalid.Fields) {
	values, problems := listquery.Parameters(raw, names...)
	return values, problems
}

// ReadLimit returns the parameter limit, or DefaultLimit without one. It adds to problems.
func ReadLimit(values map[string]string, problems invalid.Fields) int {
	return listquery.Limit(values, problems)
}

// ReadFields returns the members that the parameter fields asks for, or nil for all. It adds to problems.
func ReadFields(values map[string]string, problems invalid.Fields, known []string) []string {
	return listquery.Fields(values, problems, known)
}
