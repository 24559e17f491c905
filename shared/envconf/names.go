package envconf

import (
	_ "embed"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// namesText lists the settings of all programs of Almoner, a name in a line. `make generate` writes it.
//
//go:embed names.txt
var namesText string

// elsewhere are variables that are no settings of a service: of make run, and of the examples of shared/client.
var elsewhere = []string{prefix + "HOME", prefix + "TOKEN", prefix + "TENANT"}

// forTests begins the names of variables by which tests are told what they need.
const forTests = prefix + "TEST_"

// unknown reports names that no program knows, and what was probably meant.
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
		words := "is no setting" + where
		if name == Config { // the environment's own was taken out
			words = "is read from the environment or --config alone, not" + where
		} else if near := nearest(base, known); near != "" {
			if isFile {
				near += fileSuffix
			}
			words += ": did you mean " + near + "?"
		}
		r.mistake(name, words)
	}
}

// nearest is the known name that a slip of the hand makes into name, or "".
func nearest(name string, known []string) string {
	best, least := "", 3 // two letters may be wrong
	for _, one := range known {
		if d := levenshtein.ComputeDistance(strings.TrimPrefix(name, prefix), strings.TrimPrefix(one, prefix)); d < least &&
			d < len(one)-len(prefix) {
			best, least = one, d
		}
	}
	return best
}

// fromCluster tells the variables that Kubernetes gives to every container about services (and Docker's links gave)
// from settings that are misspelled: an ALMONER_PORT of Kubernetes is an address.
func fromCluster(name, value string) bool {
	return clusterName.MatchString(name) ||
		strings.HasPrefix(name, prefix) && strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

var clusterName = regexp.MustCompile(
	`^` + prefix + `(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`,
)
