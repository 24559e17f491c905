package rest

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// FuzzBearer checks that BearerToken accepts only a single token of the b64token alphabet and returns it unchanged.
func FuzzBearer(f *testing.F) {
	for _, seed := range []string{
		"", "Bearer", "Bearer ", "Bearer x", "bearer x", "BEARER   x==", "Bearer x y", "Bearer x,y", "Basic x",
		"Bearer\tx", "Bearer =", "Bearer x=y", "Bearer \x00", "x",
	} {
		f.Add(seed, "", false)
	}
	f.Add("Bearer x", "Bearer y", true)
	f.Fuzz(func(t *testing.T, first, second string, both bool) {
		h := http.Header{"Authorization": {first}}
		if both {
			h.Add("Authorization", second)
		}
		token, err := BearerToken(h)
		if err != nil {
			if token != "" || !errors.Is(err, ErrNoToken) && !errors.Is(err, ErrMalformedToken) {
				t.Errorf("returned %d characters of a token with the error %v", len(token.Reveal()), err)
			}
			return
		}
		text := token.Reveal()
		if both || len(first) < 8 || !strings.EqualFold(first[:7], "bearer ") || !strings.HasSuffix(first, " "+text) {
			t.Errorf("%q gave %q", first, text)
		}
		if text == "" || strings.ContainsAny(text, " \t\r\n,;\"\\") ||
			strings.Contains(strings.TrimRight(text, "="), "=") {
			t.Errorf("%q gave %q", first, text)
		}
		if strings.TrimLeft(first[6:], " ") != text {
			t.Errorf("%q gave %q, which is not the whole token", first, text)
		}
	})
}
