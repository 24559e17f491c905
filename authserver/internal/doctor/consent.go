package doctor

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
)

// maxPages is how many pages lie between the request and the callback at most.
const maxPages = 10

// A visit is the doctor at the pages of the authorization server, as a browser without script.
type visit struct {
	walk     *walk
	origin   string // of the pages: nothing is sent elsewhere
	signedIn bool
	approved bool
	chose    bool
}

// consent signs in, chooses a workspace where it is asked to, and approves. It returns the address of the callback.
func (w *walk) consent(ctx context.Context) (string, error) {
	place, err := url.Parse(w.server.authorize)
	if err != nil {
		return "", errStop
	}
	// D3: whoever runs the server that was named also gets the password.
	issuer, err := url.Parse(w.server.issuer)
	if err != nil || origin(issuer) != origin(w.typed) || (place.Scheme != "https" && !isLoopback(place.Hostname())) {
		w.find("password_not_sent", nil, "the sign-in page is at "+origin(place))
		return "", errStop
	}
	v := &visit{walk: w, origin: origin(place)}
	answer, err := w.send(ctx, w.open(w.attempt.address, "as a browser", true))
	for range maxPages {
		if err != nil {
			return "", err
		}
		var next wire.Request
		var callback string
		next, callback, err = v.turn(answer)
		if callback != "" || err != nil {
			return callback, err
		}
		answer, err = w.send(ctx, next)
	}
	w.find("endless_pages", answer)
	return "", errStop
}

// turn decides what to do with an answer: the next request, or the callback's address.
func (v *visit) turn(answer *wire.Answer) (wire.Request, string, error) {
	if answer.Status >= 300 && answer.Status < 400 {
		return v.follow(answer)
	}
	p, ok := readPage(answer)
	if !ok || answer.Status >= 500 {
		v.walk.find("page_fails", answer, saidBy(answer))
		return wire.Request{}, "", errStop
	}
	for _, f := range p.forms() {
		if strings.HasSuffix(f.action.Path, "/logout") && f.post && origin(f.action) == v.origin {
			v.walk.leave = &f
		}
	}
	for _, f := range p.forms() {
		if origin(f.action) != v.origin || answer.Status != http.StatusOK {
			continue
		}
		switch _, decides := f.button("approve"); {
		case f.post && f.password != "" && f.login != "" && !v.signedIn:
			return v.signIn(f), "", nil
		case f.post && decides && !v.approved:
			return v.approve(answer, f)
		case len(f.open()) > 0 && !v.chose:
			return v.choose(f)
		}
	}
	again := slices.ContainsFunc(p.forms(), func(f form) bool { return f.password != "" })
	return wire.Request{}, "", v.stuck(answer, again)
}

// stuck says why there is nothing to go on with. again: there is a sign-in form.
func (v *visit) stuck(answer *wire.Answer, again bool) error {
	switch {
	case v.signedIn && (again || (answer.Status != http.StatusOK && v.walk.leave == nil)):
		v.walk.find("sign_in_failed", answer, saidBy(answer))
	case v.signedIn && answer.Status != http.StatusOK:
		v.walk.find("consent_refused", answer, saidBy(answer))
	default:
		v.walk.find("page_not_understood", answer, saidBy(answer))
	}
	return errStop
}

func (v *visit) follow(answer *wire.Answer) (wire.Request, string, error) {
	location := answer.Header.Get("Location")
	before, _, _ := strings.Cut(v.walk.redirect, "?")
	if at, _, _ := strings.Cut(location, "?"); at == before {
		if v.approved {
			v.judgeReturn(answer)
		}
		return wire.Request{}, location, nil
	}
	at, err := url.Parse(answer.Request.URL)
	if err == nil {
		at, err = at.Parse(location)
	}
	if err != nil || origin(at) != v.origin {
		v.walk.find("led_elsewhere", answer)
		return wire.Request{}, "", errStop
	}
	return v.walk.open(at.String(), "as a browser", true), "", nil
}

// judgeReturn wants a status after which the browser asks with GET: with 307 it would send the consent page's form to
// the client.
func (v *visit) judgeReturn(answer *wire.Answer) {
	switch answer.Status {
	case http.StatusFound, http.StatusSeeOther:
		v.walk.find("approval_redirects", answer)
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		v.walk.find("approval_307", answer)
	default:
		v.walk.find("approval_301", answer)
	}
}

func (v *visit) submit(f form, note string) wire.Request {
	if !f.post {
		address := *f.action
		address.RawQuery = f.fields.Encode()
		return v.walk.open(address.String(), note, true)
	}
	r := wire.Form(f.action.String(), f.fields.Encode(), callLimit)
	r.Note, r.Browsing = note, true
	r.Header["Accept"], r.Header["Origin"], r.Header["Sec-Fetch-Site"] = "text/html", v.origin, "same-origin"
	return r
}

func (v *visit) signIn(f form) wire.Request {
	f.fields.Set(f.login, v.walk.Email)
	f.fields.Set(f.password, v.walk.Password.Reveal())
	v.signedIn = true
	return v.submit(f, "sign-in as "+v.walk.Email)
}

func (v *visit) approve(answer *wire.Answer, f form) (wire.Request, string, error) {
	v.judgeFormAction(answer)
	if len(f.open()) > 0 {
		if err := v.pick(&f); err != nil {
			return wire.Request{}, "", err
		}
	}
	button, _ := f.button("approve")
	f.fields.Set(button.name, button.value)
	v.approved = true
	return v.submit(f, "approve"), "", nil
}

// judgeFormAction wants the callback named: Chromium applies form-action to the redirect after the form was sent (CSP
// level 3, section 6.4.1).
func (v *visit) judgeFormAction(answer *wire.Answer) {
	callback, err := url.Parse(v.walk.redirect)
	if err != nil {
		return
	}
	for _, policy := range answer.Header.Values("Content-Security-Policy") {
		for directive := range strings.SplitSeq(policy, ";") {
			sources := strings.Fields(directive)
			if len(sources) == 0 || !strings.EqualFold(sources[0], "form-action") {
				continue
			}
			if !has(sources, "*") && !has(sources, callback.Scheme+":") && !has(sources, origin(callback)) &&
				!has(sources, origin(callback)+"/") {
				v.walk.find(
					"form_action",
					answer,
					"form-action is "+quote(strings.Join(sources[1:], " "))+" and lacks "+origin(callback),
				)
				return
			}
		}
	}
	v.walk.find("form_action_ok", answer)
}

func (v *visit) choose(f form) (wire.Request, string, error) {
	if err := v.pick(&f); err != nil {
		return wire.Request{}, "", err
	}
	for _, button := range f.buttons {
		if button.value != "deny" && button.value != "cancel" {
			f.fields.Set(button.name, button.value)
			break
		}
	}
	v.chose = true
	return v.submit(f, "the workspace chosen"), "", nil
}

// pick takes the choice that the person named: by its value, by its words, or by how its words alone begin.
func (v *visit) pick(f *form) error {
	offered, wanted := f.open(), v.walk.Workspace
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
	v.walk.find("workspace_not_chosen", nil, "it offers "+strings.Join(labels, ", "))
	return errStop
}
