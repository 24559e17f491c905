package client

import (
	"regexp"
	"strconv"
)

// loopbackPattern splits a loopback redirect URI into the host, the port and the rest.
var loopbackPattern = regexp.MustCompile(`^(http://(?:localhost|127\.0\.0\.1|\[::1\]))(?::([0-9]{1,5}))?((?:[/?].*)?)$`)

// loopbackButForPort reports whether two redirect URIs are loopback URIs that differ at most in the port. A native
// application cannot know in advance which port is free (RFC 8252, section 7.3).
func loopbackButForPort(listed, requested string) bool {
	a, b := loopbackPattern.FindStringSubmatch(listed), loopbackPattern.FindStringSubmatch(requested)
	if a == nil || b == nil || a[1] != b[1] || a[3] != b[3] {
		return false
	}
	if b[2] == "" {
		return true
	}
	port, err := strconv.Atoi(b[2])
	return err == nil && port >= 1 && port <= 65535
}
