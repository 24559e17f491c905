package doctor

import (
	"context"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

const (
	serverWellKnown = "/.well-known/oauth-authorization-server"
	openIDWellKnown = "/.well-known/openid-configuration"
)

// discover reads the metadata of the authorization server in the client's order (RFC 8414, section 3; MCP,
// Authorization Server Metadata Discovery), judges it, and checks the places used by other clients and
// earlier versions.
func (w *run) discover(ctx context.Context) error {
	places := serverPlaces(w.offered.issuer)
	var first document
	found := false
	for _, address := range places {
		one, fault := w.fetch(ctx, address)
		switch {
		case fault == "" && !found:
			first, found = one, true
			w.judgeServing(first)
			w.readServer(first)
		case fault == "":
			w.judgeAlias(first, one)
		case fault != missing && fault != silent:
			w.find(fault, one.answer)
		}
	}
	if !found {
		w.find("no_server_document", nil, "looked at "+strings.Join(places, ", "))
		if err := w.guesses(ctx); err != nil {
			return err
		}
		return errStop
	}
	if err := w.aliases(ctx, first, places); err != nil {
		return err
	}
	if err := w.guesses(ctx); err != nil {
		return err
	}
	if !w.server.sound {
		return errStop
	}
	return w.identify(ctx)
}

// serverPlaces returns the metadata addresses of an issuer, with or without a path.
func serverPlaces(issuer string) []string {
	parsed, err := url.Parse(issuer)
	if err != nil {
		return nil
	}
	base, path := origin(parsed), strings.TrimSuffix(parsed.EscapedPath(), "/")
	if path == "" {
		return []string{base + serverWellKnown, base + openIDWellKnown}
	}
	return []string{base + serverWellKnown + path, base + openIDWellKnown + path, base + path + openIDWellKnown}
}

// aliases checks the addresses on the API's host that are used by clients which skip the resource's document.
func (w *run) aliases(ctx context.Context, first document, done []string) error {
	base, path := origin(w.typed), strings.TrimSuffix(w.typed.EscapedPath(), "/")
	for _, address := range []string{
		base + serverWellKnown,
		base + serverWellKnown + path,
		base + openIDWellKnown + path,
		base + path + openIDWellKnown,
		base + path + serverWellKnown,
	} {
		if slices.Contains(done, address) {
			continue
		}
		done = append(done, address)
		one, fault := w.fetch(ctx, address)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case fault == "":
			w.judgeAlias(first, one)
		case fault == missing && w.profile.rootFirst && address == base+serverWellKnown+path:
			w.find("alias_missing", one.answer)
		case fault != missing && fault != silent:
			w.find("alias_strange", one.answer)
		}
	}
	return nil
}

// judgeAlias expects the same document at every address.
func (w *run) judgeAlias(first, alias document) {
	for _, name := range []string{
		"issuer",
		"authorization_endpoint",
		"token_endpoint",
		"code_challenge_methods_supported",
		"scopes_supported",
	} {
		if !reflect.DeepEqual(first.values[name], alias.values[name]) {
			w.find("alias_differs", alias.answer, name+" differs from "+first.answer.Request.URL)
			return
		}
	}
	w.find("alias_ok", alias.answer)
}
