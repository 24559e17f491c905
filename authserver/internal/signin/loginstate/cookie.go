package loginstate

import (
	"crypto/rand"
	"net/http"
	"strings"
	"time"
)

// A browser at which no user is signed in yet is identified by its own cookie; a session would store a row for every
// anonymous request. The cookie proves only that two requests came from one browser. It is Lax and not Strict, because
// a provider's redirect back must carry it.
const (
	cookieName = "almoner-begun"
	cookieLife = 24 * time.Hour                    // longer than a sign-in page stays open
	tokenSize  = len("ABCDEFGHIJKLMNOPQRSTUVWXYZ") // length of rand.Text: 26 letters and digits, 130 bits
)

// BindToBrowser returns the binding to the browser. It sets the cookie, or renews it if the browser has one.
//
// Of two requests without the cookie at the same time, the later response replaces the cookie of the earlier one, whose
// login state cannot be finished then. A page from which several logins can begin at once therefore sets the cookie.
func (s *States) BindToBrowser(w http.ResponseWriter, r *http.Request) Binding {
	by, known := s.BoundToBrowser(r)
	if !known {
		by = Binding{"browser:" + rand.Text()}
	}
	http.SetCookie(w, &http.Cookie{
		Name:     s.name(),
		Value:    strings.TrimPrefix(by.of, "browser:"),
		Path:     "/",
		MaxAge:   int(cookieLife.Seconds()),
		HttpOnly: true,
		Secure:   s.secure,
		SameSite: http.SameSiteLaxMode,
	})
	return by
}

// BoundToBrowser returns the binding to a browser that has the cookie, and false if it has none.
func (s *States) BoundToBrowser(r *http.Request) (Binding, bool) {
	cookie, err := r.Cookie(s.name())
	if err != nil || len(cookie.Value) != tokenSize {
		return Binding{}, false
	}
	return Binding{"browser:" + cookie.Value}, true
}

func (s *States) name() string {
	if s.secure {
		return "__Host-" + cookieName
	}
	return cookieName
}
