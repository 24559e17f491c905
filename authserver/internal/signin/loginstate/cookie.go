package loginstate

import (
	"crypto/rand"
	"net/http"
	"time"
)

// A browser at which nobody is signed in yet is known by a cookie of its own: a session would leave a row for every
// visitor who only looks. It proves nothing but that two requests came from one browser. Lax, and not Strict: a
// provider's redirect back has to carry it.
const (
	cookieName = "almoner-begun"
	cookieLife = time.Hour
	tokenSize  = len("ABCDEFGHIJKLMNOPQRSTUVWXYZ") // of rand.Text: 26 letters and digits, 130 bits
)

// BindToBrowser binds to the browser, which gets a cookie if it has none.
func (c *States) BindToBrowser(w http.ResponseWriter, r *http.Request) Binding {
	if by, known := c.BoundToBrowser(r); known {
		return by
	}
	token := rand.Text()
	http.SetCookie(w, &http.Cookie{
		Name:     c.name(),
		Value:    token,
		Path:     "/",
		MaxAge:   int(cookieLife.Seconds()),
		HttpOnly: true,
		Secure:   c.secure,
		SameSite: http.SameSiteLaxMode,
	})
	return Binding{"browser:" + token}
}

// BoundToBrowser is the binding to a browser that has begun something; false: it has not.
func (c *States) BoundToBrowser(r *http.Request) (Binding, bool) {
	cookie, err := r.Cookie(c.name())
	if err != nil || len(cookie.Value) != tokenSize {
		return Binding{}, false
	}
	return Binding{"browser:" + cookie.Value}, true
}

func (c *States) name() string {
	if c.secure {
		return "__Host-" + cookieName
	}
	return cookieName
}
