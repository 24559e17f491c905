package loginstate

import (
	"crypto/rand"
	"net/http"
	"time"
)

// A browser at which no user is signed in yet is identified by its own cookie; a session would store a row for every
// anonymous request. The cookie proves only that two requests came from one browser. It is Lax and not Strict, because
// a provider's redirect back must carry it.
const (
	cookieName = "almoner-begun"
	cookieLife = 24 * time.Hour                    // longer than a sign-in page usually stays open; not renewed
	tokenSize  = len("ABCDEFGHIJKLMNOPQRSTUVWXYZ") // length of rand.Text: 26 letters and digits, 130 bits
)

// BindToBrowser returns the binding to the browser, and sets the cookie if the browser has none.
//
// If two concurrent requests have no cookie, each response sets a different one and the browser keeps the last; the
// other login cannot be completed. So a page that can start logins calls BindToBrowser when it is shown.
func (s *States) BindToBrowser(w http.ResponseWriter, r *http.Request) Binding {
	if by, known := s.BoundToBrowser(r); known {
		return by
	}
	token := rand.Text()
	http.SetCookie(w, &http.Cookie{
		Name:     s.name(),
		Value:    token,
		Path:     "/",
		MaxAge:   int(cookieLife.Seconds()),
		HttpOnly: true,
		Secure:   s.secure,
		SameSite: http.SameSiteLaxMode,
	})
	return Binding{"browser:" + token}
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
