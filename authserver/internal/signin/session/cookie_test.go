package session

import (
	"context"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/seal"
)

func TestSessionCookie_HostPrefixOverHTTPS(t *testing.T) {
	for secure, prefix := range map[bool]string{true: "__Host-almoner=", false: "almoner="} {
		answer := httptest.NewRecorder()
		sessions, err := New(Deps{Secure: secure, Keys: seal.NewKeys(make([]byte, 32))})
		must(t, err)
		sessions.manager.WriteSessionCookie(context.Background(), answer, "value", time.Now().Add(time.Hour))
		cookie := answer.Header().Get("Set-Cookie")
		if !strings.HasPrefix(cookie, prefix) || strings.Contains(cookie, "; Secure") != secure ||
			strings.Contains(cookie, "Domain") ||
			!strings.Contains(cookie, "Path=/;") {
			t.Errorf("secure %v: %s", secure, cookie)
		}
	}
}

func TestDevices_KnowOnlyTheirAccounts(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	deps := Deps{Keys: seal.NewKeys(make([]byte, 32)), Secure: true, Now: func() time.Time { return now }}
	devices, err := newDevices("almoner-device", "device cookie", deps)
	must(t, err)
	browser := httptest.NewRequest("POST", "/login", nil)
	signIn := func(email string) {
		w := httptest.NewRecorder()
		devices.remember(w, browser, email)
		cookie := w.Result().Cookies()[0]
		if cookie.Name != "__Host-almoner-device" || !cookie.HttpOnly || !cookie.Secure ||
			strings.Contains(cookie.Value, "@") {
			t.Errorf("%+v", cookie)
		}
		browser = httptest.NewRequest("POST", "/login", nil)
		browser.AddCookie(cookie)
	}
	for i := range maxOnDevice + 1 {
		signIn(strconv.Itoa(i) + "@example.org")
		signIn(strconv.Itoa(i) + "@example.org")
	}
	for i, want := range []bool{false, true, true, true, true, false} {
		if got := devices.know(browser, strconv.Itoa(i)+"@example.org"); got != want {
			t.Errorf("account %d: %v", i, got)
		}
	}
	forged := httptest.NewRequest("POST", "/login", nil)
	cookie, _ := browser.Cookie("__Host-almoner-device")
	cookie.Value = cookie.Value[:20] + "AAAAAAAA" + cookie.Value[28:]
	forged.AddCookie(cookie)
	if devices.know(forged, "4@example.org") ||
		devices.know(httptest.NewRequest("POST", "/login", nil), "4@example.org") {
		t.Error("a forged cookie is accepted")
	}
	now = now.Add(deviceLife)
	if devices.know(browser, "4@example.org") {
		t.Error("a sign-in of long ago still counts")
	}
}
