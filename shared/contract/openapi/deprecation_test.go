package openapi

import (
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/rest"
)

// The services announce exactly the operations with `deprecated: true`, each with a notice that is long enough.
func TestDeprecated_MatchesDescription(t *testing.T) {
	announced := map[string]bool{}
	for _, one := range rest.Deprecated() {
		announced[one.Method+" "+one.Path] = true
		if one.Sunset.Sub(one.Since) < 180*24*time.Hour || one.Link == "" {
			t.Errorf("%s %s: the notice is too short, or has no link", one.Method, one.Path)
		}
	}
	for _, o := range described(t).Operations() {
		name := o.Method + " " + o.Path
		if marked := o.Value("deprecated") == true; marked != announced[name] {
			t.Errorf("%s: deprecated in the description %t, in package rest %t", name, marked, announced[name])
		}
		delete(announced, name)
	}
	for name := range announced {
		t.Errorf("%s is not described", name)
	}
}
