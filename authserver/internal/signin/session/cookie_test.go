package session

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestSessionCookie_HostPrefixOverHTTPS(t *testing.T) {
	for secure, prefix := range map[bool]string{true: "__Host-almoner=", false: "almoner="} {
		answer := httptest.NewRecorder()
		manager := New(Deps{Secure: secure}).manager
		manager.WriteSessionCookie(context.Background(), answer, "value", time.Now().Add(time.Hour))
		cookie := answer.Header().Get("Set-Cookie")
		if !strings.HasPrefix(cookie, prefix) || strings.Contains(cookie, "; Secure") != secure ||
			strings.Contains(cookie, "Domain") ||
			!strings.Contains(cookie, "Path=/;") {
			t.Errorf("secure %v: %s", secure, cookie)
		}
	}
}
