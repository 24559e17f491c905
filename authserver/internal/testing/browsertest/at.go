package browsertest

import "testing"

// At opens a browser that has never been at a site that the test serves itself, at an origin.
func At(t testing.TB, origin string) *Browser {
	t.Helper()
	return (&Server{t: t, URL: origin}).Browser()
}
