package envconf

import (
	_ "embed"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// namesText lists the settings of all Almoner programs, one name per line. `make generate` writes it.
//
//go:embed names.txt
var namesText string

// elsewhere lists variables that are not settings of a service: those of make run and of the examples of
// shared/client.
var elsewhere = []string{prefix + "HOME"}

// forTests is the prefix of variables for tests.
const forTests = prefix + "TEST_"

// unknown reports names that no program knows, with a suggestion.
func (r *reader) unknown(place map[string]string, where string) {
	var known []string
	for _, s := range r.settings {
		known = append(known, s.Name)
	}
	known = append(known, strings.Fields(namesText)...)
	for _, name := range slices.Sorted(maps.Keys(place)) {
		if !strings.HasPrefix(name, prefix) || strings.HasPrefix(name, forTests) {
			continue
		}
		base, isFile := strings.CutSuffix(name, fileSuffix)
		if slices.Contains(known, name) || slices.Contains(elsewhere, name) || isFile && slices.Contains(known, base) {
			continue
		}
		words := "is not a known setting" + where
		if name == Config { // the one of the environment was removed
			words = "must be set in the environment or by --config, not" + where
		} else if near := nearest(base, known); near != "" {
			if isFile {
				near += fileSuffix
			}
			words += ": did you mean " + near + "?"
		}
		r.mistake(name, words)
	}
}

// nearest returns the known name that name is probably a misspelling of, or "".
func nearest(name string, known []string) string {
	best, least := "", 3 // up to two letters may differ
	for _, one := range known {
		d := levenshtein.ComputeDistance(strings.TrimPrefix(name, prefix), strings.TrimPrefix(one, prefix))
		if d < least && d < len(one)-len(prefix) {
			best, least = one, d
		}
	}
	return best
}

// fromCluster reports whether a variable was set by Kubernetes (or Docker links) for a service, so that it is
// not a misspelled setting: an ALMONER_PORT of Kubernetes is an address.
func fromCluster(name, value string) bool {
	return clusterName.MatchString(name) ||
		strings.HasPrefix(name, prefix) && strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

var clusterName = regexp.MustCompile(
	`^` + prefix + `(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`,
)
