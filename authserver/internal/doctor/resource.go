package doctor

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
)

const resourceWellKnown = "/.well-known/oauth-protected-resource"

// resource reads the metadata of the protected resource at each address that the client uses, in its order
// (RFC 9728, section 3).
func (w *run) resource(ctx context.Context) error {
	var first document
	found := false
	for _, address := range w.resourcePlaces() {
		challenged := address == w.offered.metadata
		if challenged && !w.usable(address, "resource_metadata of the challenge", nil) {
			continue
		}
		one, fault := w.fetch(ctx, address)
		switch {
		case fault == missing && challenged:
			w.find("challenge_leads_nowhere", one.answer)
		case fault == missing && address == origin(w.typed)+resourceWellKnown && found:
			w.find("no_root_document", one.answer)
		case fault == missing || fault == silent:
		case fault != "":
			w.find(fault, one.answer)
		case !found:
			first, found = one, true
			w.judgeServing(first)
			w.judgeResource(first)
		case w.offered.resource == w.Options.URL:
			w.judgeAgain(first, one)
		}
	}
	if !found {
		w.find("no_resource_document", nil, "looked at "+strings.Join(w.resourcePlaces(), ", "))
		return errStop
	}
	if w.offered.issuer == "" || !w.usable(w.offered.issuer, "authorization_servers[0]", first.answer) {
		return errStop
	}
	return nil
}

// elsewhere returns the resource URL in the server's own metadata, if it differs from the typed one.
func (w *run) elsewhere(ctx context.Context) string {
	answer, err := w.line.Send(
		ctx,
		wire.Request{Method: http.MethodGet, URL: origin(w.typed) + resourceWellKnown, Within: w.DiscoveryTimeout},
	)
	if err != nil {
		return ""
	}
	values, err := readObject(answer.Body)
	resource, _ := values["resource"].(string)
	if err != nil || resource == "" || resource == w.Options.URL {
		return ""
	}
	return "the server's own metadata contains " + quote(resource)
}

// judgeAgain expects another address to describe the same resource.
func (w *run) judgeAgain(first, again document) {
	for _, name := range []string{"resource", "authorization_servers"} {
		if !reflect.DeepEqual(again.values[name], first.values[name]) {
			w.find("resource_documents_differ", again.answer, name+" differs from "+first.answer.Request.URL)
			return
		}
	}
	w.find("resource_document_again", again.answer)
}

// resourcePlaces returns the addresses without duplicates: first the address in the challenge, then the addresses that
// a client would guess.
func (w *run) resourcePlaces() []string {
	base := origin(w.typed) + resourceWellKnown
	places := []string{base + strings.TrimSuffix(w.typed.EscapedPath(), "/"), base}
	if w.profile.rootFirst {
		slices.Reverse(places)
	}
	if w.offered.metadata != "" {
		places = append([]string{w.offered.metadata}, places...)
	}
	var once []string
	for _, place := range places {
		if !slices.Contains(once, place) {
			once = append(once, place)
		}
	}
	return once
}

func (w *run) judgeResource(d document) {
	servers, scopes := d.list("authorization_servers"), d.list("scopes_supported")
	w.offered.resource, w.offered.scopes = d.text("resource"), scopes
	if len(servers) > 0 {
		w.offered.issuer = servers[0]
	}
	sound := true
	for _, fault := range []struct {
		is     bool
		code   string
		detail string
	}{
		{w.offered.resource == "", "no_resource", ""},
		{
			w.offered.resource != "" && w.offered.resource != w.Options.URL,
			"resource_differs",
			difference(w.offered.resource, w.Options.URL),
		},
		{len(servers) == 0, "no_authorization_servers", ""},
		{len(servers) > 1, "several_authorization_servers", fmt.Sprintf("%d are listed", len(servers))},
		{has(scopes, "offline_access"), "offline_access_in_resource", ""},
		{len(scopes) == 0 && w.offered.scope == "", "no_scopes_anywhere", ""},
	} {
		if fault.is {
			sound = false
			w.find(fault.code, d.answer, fault.detail)
		}
	}
	if sound {
		w.find(
			"resource_ok",
			d.answer,
			"resource is "+quote(w.offered.resource)+", authorization server "+quote(w.offered.issuer),
		)
	}
}

// difference describes how an identifier differs from the expected one, byte for byte.
func difference(is, want string) string {
	text := "it is " + quote(is) + " and must be " + quote(want)
	a, errA := url.Parse(is)
	b, errB := url.Parse(want)
	switch {
	case errA != nil || errB != nil:
		return text
	case strings.TrimSuffix(is, "/") == strings.TrimSuffix(want, "/"):
		return text + ": they differ in a trailing slash"
	case strings.EqualFold(is, want):
		return text + ": they differ in upper and lower case"
	case a.Host == b.Host && a.EscapedPath() == b.EscapedPath():
		return text + ": " + a.Scheme + " is not " + b.Scheme + ", so the server may not trust a proxy in front of it"
	case a.EscapedPath() == b.EscapedPath():
		return text + ": the hosts differ"
	case a.Host == b.Host:
		return text + ": the paths differ"
	}
	return text
}
