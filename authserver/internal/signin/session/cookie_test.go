package session

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/seal"
)

func TestSessionCookie_HostPrefixOverHTTPS(t *testing.T) {
	for secure, prefix := range map[bool]string{true: "__Host-almoner=", false: "almoner="} {
		answer := httptest.NewRecorder()
		sessions, err := New(Deps{Secure: secure, Keys: seal.NewKeys(make([]byte, 32))})
		if err != nil {
			t.Fatal(err)
		}
		sessions.manager.WriteSessionCookie(context.Background(), answer, "value", time.Now().Add(time.Hour))
		cookie := answer.Header().Get("Set-Cookie")
		if !strings.HasPrefix(cookie, prefix) || strings.Contains(cookie, "; Secure") != secure ||
			strings.Contains(cookie, "Domain") ||
			!strings.Contains(cookie, "Path=/;") {
			t.Errorf("secure %v: %s", secure, cookie)
		}
	}
}
