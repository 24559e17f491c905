package ui

import "net/url"

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
