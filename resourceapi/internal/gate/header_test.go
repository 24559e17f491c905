package gate

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
)

// FuzzBearer checks that readBearer accepts only a single token of the b64token alphabet and returns it unchanged.
func FuzzBearer(f *testing.F) {
	for _, seed := range []string{
		"",
		"Bearer",
		"Bearer ",
		"Bearer x",
		"bearer x",
		"BEARER   x==",
		"Bearer x y",
		"Bearer x,y",
		"Basic x",
		"Bearer\tx",
		"Bearer =",
		"Bearer x=y",
		"Bearer \x00",
		"x",
	} {
		f.Add(seed, "", false)
	}
	f.Add("Bearer x", "Bearer y", true)
	f.Fuzz(func(t *testing.T, first, second string, both bool) {
		h := http.Header{"Authorization": {first}}
		if both {
			h.Add("Authorization", second)
		}
		token, err := readBearer(h)
		if err != nil {
			if token != "" || !errors.Is(err, errNoBearer) && !errors.Is(err, errBadBearer) {
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

// FuzzWorkspace checks that only one header with an RFC 9562 identifier, in either case, names a workspace.
func FuzzWorkspace(f *testing.F) {
	for _, seed := range []string{
		"",
		"0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f",
		"0190C5D2-7F3A-7C11-9D0E-1A2B3C4D5E6F",
		"{0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f}",
		"0190c5d27f3a7c119d0e1a2b3c4d5e6f",
		"urn:uuid:0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f",
		"0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f ",
	} {
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, twice bool) {
		h := http.Header{"X-Tenant-Id": {text}}
		if twice {
			h.Add("X-Tenant-Id", text)
		}
		workspaceID, err := readWorkspace(h)
		valid := strings.EqualFold(workspaceID.String(), text) &&
			(workspaceID != uuid.Nil || text == uuid.Nil.String())
		if (err == nil) != (!twice && valid) {
			t.Errorf("%q gave %s, %v", text, workspaceID, err)
		}
		if err != nil && apierr.Of(err).Status() != http.StatusBadRequest {
			t.Errorf("%q: status %d, want 400", text, apierr.Of(err).Status())
		}
	})
}
