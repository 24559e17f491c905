package ui

import "net/http"

// Fault writes a page that explains what is wrong and what to do next.
func (p *Pages) Fault(w http.ResponseWriter, r *http.Request, m *Message) {
	if m.Title == "" {
		m.Title = m.Heading
	}
	p.Show(w, r, m.Status, m)
}

// NotFound writes a 404.
func (p *Pages) NotFound(w http.ResponseWriter, r *http.Request) {
	p.Fault(w, r, &Message{
		Status:  http.StatusNotFound,
		Heading: "There is no such page",
		Text:    "The address may be misspelt, or the page may have moved.",
		Links:   []Link{{"/settings/user", "Go to your settings"}},
	})
}

// NotAllowed writes a 405. The router has set Allow.
func (p *Pages) NotAllowed(w http.ResponseWriter, r *http.Request) {
	p.Fault(w, r, &Message{
		Status:  http.StatusMethodNotAllowed,
		Heading: "That cannot be done here",
		Text:    "This address does not answer that kind of request.",
		Next:    "Go back and try again from the page before.",
	})
}

// NoPage returns a handler for a URL that only takes a form: a 405 for other methods, with a link to the page that the
// form is on. Users get here when they reload the response to a form.
func (p *Pages) NoPage(back string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Fault(w, r, &Message{
			Status:  http.StatusMethodNotAllowed,
			Heading: "There is no page to open at this address",
			Text:    "It takes what a form sends. Nothing was sent and nothing was changed just now.",
			Links:   []Link{{back, "Open the page with the form"}},
		})
	})
}

// Foreign writes a 403 for a form that another site sent.
func (p *Pages) Foreign(w http.ResponseWriter, r *http.Request) {
	p.Fault(w, r, &Message{
		Status:  http.StatusForbidden,
		Heading: "This form came from another site",
		Text:    "For your safety, nothing was done.",
		Next:    "If you did mean to do something here, open this site in a new tab and start again.",
	})
}

// Unavailable writes a 503.
func (p *Pages) Unavailable(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "5")
	p.Fault(w, r, &Message{
		Status:  http.StatusServiceUnavailable,
		Heading: "We cannot do this at the moment",
		Text:    "A part of this service does not answer. Nothing was changed, and nobody was signed out.",
		Next:    "Please try again in a few seconds.",
	})
}

// Internal writes a 500.
func (p *Pages) Internal(w http.ResponseWriter, r *http.Request) {
	p.Fault(w, r, &Message{
		Status:  http.StatusInternalServerError,
		Heading: "Something went wrong on our side",
		Text:    "We have noted what happened.",
		Next:    "Please try again. If it happens again, quote the request id below.",
	})
}

// TooLarge writes a 413.
func (p *Pages) TooLarge(w http.ResponseWriter, r *http.Request) {
	p.Fault(w, r, &Message{
		Status:  http.StatusRequestEntityTooLarge,
		Heading: "That is too much at once",
		Text:    "The form that was sent is larger than any of ours.",
		Next:    "Go back and try again.",
	})
}

// SameOrigin accepts forms from the server's own origin only and writes a 403 for others. A request without Origin and
// Sec-Fetch-Site does not come from a current browser, and is left to the checks of next.
func (p *Pages) SameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(p.Foreign))
	return protection.Handler(next)
}
