package ui

import (
	"net/url"
	"path"
	"strings"
)

const maxLocalPath = 16 << 10

// LocalPath returns text if it is a path on this host, with or without a query, and otherwise the other path. Text that
// a browser could take for another host is not a local path: two slashes, backslashes, control characters.
func LocalPath(text, otherwise string) string {
	if len(text) == 0 || len(text) > maxLocalPath || text[0] != '/' {
		return otherwise
	}
	if len(text) > 1 && text[1] == '/' {
		return otherwise
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] >= 0x7f || text[i] == '\\' {
			return otherwise
		}
	}
	parsed, err := url.Parse(text)
	if err != nil || parsed.IsAbs() || parsed.Host != "" {
		return otherwise
	}
	return text
}

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
