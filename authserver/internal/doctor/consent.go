package doctor

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
)

// maxPages is the maximum number of pages between the request and the callback.
const maxPages = 10

// A browser is the client's side of the authorization server's pages, without scripts.
type browser struct {
	run        *run
	origin     string // of the pages; nothing is sent to another origin
	signedIn   bool
	approved   bool
	chose      bool
	restricted bool // a page has form-action
}

// consent signs in, chooses a workspace if the page offers a choice, and approves. It returns the address of
// the callback.
func (w *run) consent(ctx context.Context) (string, error) {
	place, err := url.Parse(w.server.authorize)
	if err != nil {
		return "", errStop
	}
	// D3: the operator of the named server also receives the password.
	issuer, err := url.Parse(w.server.issuer)
	if err != nil || origin(issuer) != origin(w.typed) || (place.Scheme != "https" && !isLoopback(place.Hostname())) {
		w.find("password_not_sent", nil, "the sign-in page is at "+origin(place))
		return "", errStop
	}
	b := &browser{run: w, origin: origin(place)}
	answer, err := w.send(ctx, w.open(w.attempt.address, "as a browser", true))
	for range maxPages {
		if err != nil {
			return "", err
		}
		var next wire.Request
		var callback string
		next, callback, err = b.turn(answer)
		if callback != "" || err != nil {
			return callback, err
		}
		answer, err = w.send(ctx, next)
	}
	w.find("endless_pages", answer)
	return "", errStop
}

// turn decides how to continue after a response: with the next request, or with the callback's address.
func (b *browser) turn(answer *wire.Answer) (wire.Request, string, error) {
	if answer.Status >= 300 && answer.Status < 400 {
		return b.follow(answer)
	}
	p, ok := readPage(answer)
	if !ok || answer.Status >= 500 {
		b.run.find("page_fails", answer, saidBy(answer))
		return wire.Request{}, "", errStop
	}
	for _, f := range p.forms() {
		if strings.HasSuffix(f.action.Path, "/logout") && f.post && origin(f.action) == b.origin {
			b.run.leave = &f
		}
	}
	for _, f := range p.forms() {
		if origin(f.action) != b.origin || answer.Status != http.StatusOK {
			continue
		}
		switch _, decides := f.button("approve"); {
		case f.post && f.password != "" && f.login != "" && !b.signedIn:
			b.judgeFormAction(answer)
			return b.signIn(f), "", nil
		case f.post && decides && !b.approved:
			return b.approve(answer, f)
		case len(f.open()) > 0 && !b.chose:
			b.judgeFormAction(answer)
			return b.choose(f)
		}
	}
	again := slices.ContainsFunc(p.forms(), func(f form) bool { return f.password != "" })
	return wire.Request{}, "", b.stuck(answer, again)
}

// stuck records why it cannot continue. again reports that there is a sign-in form.
func (b *browser) stuck(answer *wire.Answer, again bool) error {
	switch {
	case b.signedIn && (again || (answer.Status != http.StatusOK && b.run.leave == nil)):
		b.run.find("sign_in_failed", answer, saidBy(answer))
	case b.signedIn && answer.Status != http.StatusOK:
		b.run.find("consent_refused", answer, saidBy(answer))
	default:
		b.run.find("page_not_understood", answer, saidBy(answer))
	}
	return errStop
}

func (b *browser) follow(answer *wire.Answer) (wire.Request, string, error) {
	location := answer.Header.Get("Location")
	before, _, _ := strings.Cut(b.run.redirect, "?")
	if at, _, _ := strings.Cut(location, "?"); at == before {
		if b.approved {
			b.judgeReturn(answer)
		}
		return wire.Request{}, location, nil
	}
	at, err := url.Parse(answer.Request.URL)
	if err == nil {
		at, err = at.Parse(location)
	}
	if err != nil || origin(at) != b.origin {
		b.run.find("led_elsewhere", answer)
		return wire.Request{}, "", errStop
	}
	return b.run.open(at.String(), "as a browser", true), "", nil
}

// judgeReturn expects a status after which the browser uses GET: with 307 it would send the consent page's
// form to the client.
func (b *browser) judgeReturn(answer *wire.Answer) {
	switch answer.Status {
	case http.StatusFound, http.StatusSeeOther:
		b.run.find("approval_redirects", answer)
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		b.run.find("approval_307", answer)
	default:
		b.run.find("approval_301", answer)
	}
}

func (b *browser) submit(f form, note string) wire.Request {
	if !f.post {
		address := *f.action
		address.RawQuery = f.fields.Encode()
		return b.run.open(address.String(), note, true)
	}
	r := wire.Form(f.action.String(), f.fields.Encode(), callLimit)
	r.Note, r.Browsing = note, true
	r.Header["Accept"], r.Header["Origin"], r.Header["Sec-Fetch-Site"] = "text/html", b.origin, "same-origin"
	return r
}

func (b *browser) signIn(f form) wire.Request {
	f.fields.Set(f.login, b.run.Email)
	f.fields.Set(f.password, b.run.Password.Reveal())
	b.signedIn = true
	return b.submit(f, "sign-in as "+b.run.Email)
}

func (b *browser) approve(answer *wire.Answer, f form) (wire.Request, string, error) {
	b.judgeFormAction(answer)
	if !b.restricted {
		b.run.find("form_action_ok", answer)
	}
	if len(f.open()) > 0 {
		if err := b.pick(&f); err != nil {
			return wire.Request{}, "", err
		}
	}
	button, _ := f.button("approve")
	f.fields.Set(button.name, button.value)
	b.approved = true
	return b.submit(f, "approve"), "", nil
}

// judgeFormAction expects a page without form-action: Chromium applies it to every redirect after the form was sent,
// also to those of the client (CSP level 3, section 6.4.1), and no source covers the client's own schemes.
func (b *browser) judgeFormAction(answer *wire.Answer) {
	for _, policy := range answer.Header.Values("Content-Security-Policy") {
		for directive := range strings.FieldsFuncSeq(policy, func(r rune) bool { return r == ';' || r == ',' }) {
			if words := strings.Fields(directive); len(words) > 0 && strings.EqualFold(words[0], "form-action") {
				b.restricted = true
				b.run.find("form_action", answer, quote(strings.Join(words, " ")))
				return
			}
		}
	}
}

func (b *browser) choose(f form) (wire.Request, string, error) {
	if err := b.pick(&f); err != nil {
		return wire.Request{}, "", err
	}
	for _, button := range f.buttons {
		if button.value != "deny" && button.value != "cancel" {
			f.fields.Set(button.name, button.value)
			break
		}
	}
	b.chose = true
	return b.submit(f, "the workspace chosen"), "", nil
}

// pick selects the choice that the user named: by its value, by its label, or by an unambiguous prefix of its
// label.
func (b *browser) pick(f *form) error {
	offered, wanted := f.open(), b.run.Workspace
	for _, fits := range []func(choice) bool{
		func(c choice) bool { return c.value == wanted },
		func(c choice) bool { return strings.EqualFold(c.label, wanted) },
		func(c choice) bool { return strings.HasPrefix(c.label, wanted+" ") },
		func(c choice) bool { return strings.HasPrefix(c.label, wanted) },
	} {
		var fitting []choice
		for _, c := range offered {
			if wanted != "" && fits(c) {
				fitting = append(fitting, c)
			}
		}
		if len(fitting) == 1 {
			f.fields.Set(fitting[0].name, fitting[0].value)
			return nil
		}
	}
	labels := make([]string, len(offered))
	for i, c := range offered {
		labels[i] = quote(c.label)
	}
	b.run.find("workspace_not_chosen", nil, "offered: "+strings.Join(labels, ", "))
	return errStop
}
