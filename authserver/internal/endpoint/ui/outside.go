package ui

import (
	"net/url"
	"path"
	"strings"
)

// leadsOutside reports whether the local path may lead to another site: an authorization request ends at its client,
// and a sign-in with the deployment's provider begins there. A path can carry the one that follows it.
func leadsOutside(local string) bool {
	at, err := url.Parse(local)
	if err != nil {
		return true
	}
	switch place := path.Clean(at.Path); {
	case strings.HasPrefix(place, "/oauth/"), strings.HasSuffix(place, "/upstream"):
		return true
	}
	next := at.Query().Get("return")
	return next != "" && leadsOutside(next)
}

// leadsTo returns the local path that the form leads to, or "" without a form.
func (r *Retry) leadsTo() string {
	if r == nil || !r.Form {
		return ""
	}
	for _, field := range r.Fields {
		if field.Name == "return" {
			return field.Value
		}
	}
	return r.Path
}
