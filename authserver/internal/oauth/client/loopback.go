package client

import (
	"regexp"
	"strconv"
)

// loopbackPattern takes a redirect URI on the user's own computer apart: the host, the port and the rest.
var loopbackPattern = regexp.MustCompile(`^(http://(?:localhost|127\.0\.0\.1|\[::1\]))(?::([0-9]{1,5}))?((?:[/?].*)?)$`)

// loopbackButForPort says whether two redirect URIs are on the user's own computer, and the same to the letter but for
// the port: a native application cannot know beforehand which one is free (RFC 8252, section 7.3).
func loopbackButForPort(listed, asked string) bool {
	a, b := loopbackPattern.FindStringSubmatch(listed), loopbackPattern.FindStringSubmatch(asked)
	if a == nil || b == nil || a[1] != b[1] || a[3] != b[3] {
		return false
	}
	if b[2] == "" {
		return true
	}
	port, err := strconv.Atoi(b[2])
	return err == nil && port >= 1 && port <= 65535
}
