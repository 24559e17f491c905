package publicforms

import (
	"net/http"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/idempotency"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// allowOrigin lets scripts of an allowed origin read the response (Fetch, CORS protocol), whatever it is, and returns
// the refusal for any other origin. A request without Origin does not come from a script of another site.
func allowOrigin(w http.ResponseWriter, r *http.Request, form engage.Form) error {
	w.Header().Add("Vary", "Origin")
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	if len(origins) > 1 || !form.Allows(origins[0]) {
		return apierr.New(
			apierr.Forbidden,
			"The form does not allow web pages of this origin. The workspace can add the origin to the form's "+
				"allowed origins.",
		)
	}
	w.Header().Set("Access-Control-Allow-Origin", origins[0])
	w.Header().Set("Access-Control-Expose-Headers", "Retry-After, X-Request-Id, "+idempotency.ReplayedHeader)
	return nil
}

// Preflight handles OPTIONS: what a script of an allowed origin may send.
func (e *Endpoint) Preflight() http.Handler {
	return e.handle(func(w http.ResponseWriter, r *http.Request) error {
		form, err := e.find(r)
		if err != nil {
			return err
		}
		if err := checkOpen(form); err != nil {
			return err
		}
		if err := allowOrigin(w, r, form.Form); err != nil {
			return err
		}
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST")
		w.Header().Set("Access-Control-Allow-Headers", "Content-Type, Idempotency-Key")
		w.Header().Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
}
