package browsertest

import "testing"

// At opens a new browser for a server at origin that the test serves itself.
func At(t testing.TB, origin string) *Browser {
	t.Helper()
	return (&Server{t: t, URL: origin}).Browser()
}
