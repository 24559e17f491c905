package doctor

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	serverWellKnown = "/.well-known/oauth-authorization-server"
	openIDWellKnown = "/.well-known/openid-configuration"
	sendsIss        = "authorization_response_iss_parameter_supported" // a member of the document
)

// discover reads the metadata of the authorization server in the client's order (RFC 8414, section 3; MCP,
// Authorization Server Metadata Discovery), checks it, and checks the places used by other clients and
// earlier versions.
func (r *run) discover(ctx context.Context) {
	addresses := serverAddresses(r.issuer)
	var first document
	usable := false
	for _, address := range addresses {
		d, fault := r.fetch(ctx, address)
		switch {
		case fault == "" && first.resp == nil:
			first = d
			r.checkServing(d)
			usable = r.readServer(d)
		case fault == "":
			r.checkAlias(first, d)
		case fault != missing && fault != silent:
			r.find(fault, d.resp)
		}
	}
	if first.resp == nil {
		r.find("no_server_document", nil, "looked at "+strings.Join(addresses, ", "))
	} else {
		r.checkAliases(ctx, first, addresses)
	}
	r.guessEndpoints(ctx)
	if !usable {
		panic(errStop)
	}
	r.identify(ctx)
}

// serverAddresses returns the metadata addresses of an issuer, with or without a path.
func serverAddresses(issuer string) []string {
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

// checkAliases checks the addresses on the API's host that are used by clients which skip the resource's document.
func (r *run) checkAliases(ctx context.Context, first document, done []string) {
	base, path := origin(r.typed), strings.TrimSuffix(r.typed.EscapedPath(), "/")
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
		d, fault := r.fetch(ctx, address)
		switch {
		case ctx.Err() != nil:
			panic(errStop)
		case fault == "":
			r.checkAlias(first, d)
		case fault == missing && r.profile.RootFirst && address == base+serverWellKnown+path:
			r.find("alias_missing", d.resp)
		case fault != missing && fault != silent:
			r.find("alias_strange", d.resp)
		}
	}
}

// checkAlias expects the same document at every address.
func (r *run) checkAlias(first, alias document) {
	r.checkSame(first, alias, "alias_ok", "alias_differs", "issuer", "authorization_endpoint", "token_endpoint",
		"code_challenge_methods_supported", "scopes_supported")
}

// readServer checks the members of the document (RFC 8414, section 2; connectors, Discovery), and reports whether a
// client can use its endpoints.
func (r *run) readServer(d document) bool {
	r.server = d.object
	failures := r.report.Count(Fail)
	issuer, noIss := d.text("issuer"), !d.has(sendsIss)
	noDocument := noIss && r.profile.NeedsIss && r.ClientID == ""
	r.findAll(d.resp, []check{
		{issuer == "", "no_issuer", ""},
		{issuer != "" && issuer != r.issuer, "issuer_differs", difference(issuer, r.issuer)},
		{noDocument, "no_iss_no_document", ""},
		{noIss && !noDocument, "no_iss", ""},
	})
	authorize := r.required("authorization_endpoint", "no_authorization_endpoint", d.resp)
	token := r.required("token_endpoint", "no_token_endpoint", d.resp)
	if revoke := d.text("revocation_endpoint"); revoke != "" {
		r.usable(revoke, "revocation_endpoint", d.resp)
	}
	r.checkAbilities(d)
	if r.report.Count(Fail) == failures {
		endpoint := ", authorization endpoint " + d.text("authorization_endpoint")
		r.find("server_ok", d.resp, "issuer "+quote(issuer)+endpoint+", token endpoint "+d.text("token_endpoint"))
	}
	return authorize && token
}

// required reports whether a required endpoint is present and usable. absent is the code of the finding if it is not
// present.
func (r *run) required(name, absent string, about *response) bool {
	address := r.server.text(name)
	if address == "" {
		r.find(absent, about)
		return false
	}
	return r.usable(address, name, about)
}

func (r *run) checkAbilities(d document) {
	methods, scopes := d.list("code_challenge_methods_supported"), d.list("scopes_supported")
	authentication := d.list("token_endpoint_auth_methods_supported")
	var unknown []string
	for _, scope := range strings.Fields(r.challenge["scope"]) {
		if len(scopes) > 0 && !slices.Contains(scopes, scope) {
			unknown = append(unknown, scope)
		}
	}
	noS256 := len(methods) > 0 && !slices.Contains(methods, "S256")
	noPublic := !slices.Contains(authentication, "none")
	r.findAll(d.resp, []check{
		{len(methods) == 0, "no_pkce", ""},
		{noS256, "no_s256", "offered: " + strings.Join(methods, ", ")},
		{noPublic, "no_public_clients", "offered: " + strings.Join(authentication, ", ")},
		{!slices.Contains(d.list("response_types_supported"), "code"), "no_code", ""},
		{!slices.Contains(d.list("grant_types_supported"), "refresh_token"), "no_refresh", ""},
		{!slices.Contains(scopes, "offline_access"), "no_offline_access", ""},
		{len(unknown) > 0, "scopes_disagree", "not in scopes_supported: " + strings.Join(unknown, " ")},
	})
}

// guessEndpoints checks /authorize, /token and /register on the API's origin, which hosted clients use if discovery
// fails.
func (r *run) guessEndpoints(ctx context.Context) {
	if !r.profile.Hosted {
		return
	}
	r.guessAuthorize(ctx)
	form := url.Values{"grant_type": {"authorization_code"}, "client_id": {"almoner-doctor"}, "code": {"guess"}}
	resp := r.send(ctx, formRequest(origin(r.typed)+"/token", "", form, r.DiscoveryTimeout))
	r.findFirst(resp, []check{
		{resp.redirects(), "guess_token_redirects", ""},
		{resp.oauthError() == "", "guess_token", ""},
		{true, "guess_token_ok", ""},
	})
	if r.server.text("registration_endpoint") == "" {
		resp = r.send(ctx, r.registration(origin(r.typed)+"/register", "a guess"))
		r.find(either(resp.status == http.StatusNotFound, "guess_register_ok", "guess_register"), resp)
	}
}

func (r *run) guessAuthorize(ctx context.Context) {
	guess := origin(r.typed) + "/authorize"
	resp := r.send(ctx, request{
		method:  http.MethodGet,
		url:     guess + "?state=guess",
		note:    "a guess",
		timeout: r.DiscoveryTimeout,
	})
	location, query, _ := strings.Cut(resp.header.Get("Location"), "?")
	endpoint, _, _ := strings.Cut(r.server.text("authorization_endpoint"), "?")
	leads := (resp.status == http.StatusFound || resp.status == http.StatusSeeOther) &&
		location == endpoint && strings.Contains(query, "state=guess")
	if endpoint != guess {
		r.find(either(leads, "guess_authorize_ok", "guess_authorize"), resp)
	}
}

// registration makes a registration that must be refused, so that nothing is created: it only checks whether the
// endpoint responds (RFC 7591, section 3.2.2).
func (r *run) registration(address, note string) request {
	return jsonRequest(address, note, `{"redirect_uris":[]}`, r.DiscoveryTimeout)
}

// identify determines the client_id: the given one, the client's metadata document, or open registration.
func (r *run) identify(ctx context.Context) {
	register := r.server.text("registration_endpoint")
	if register != "" && r.usable(register, "registration_endpoint", nil) {
		resp := r.send(ctx, r.registration(register, "a registration without redirect URIs"))
		responds := resp.status == http.StatusBadRequest || resp.status == http.StatusCreated
		r.find(either(responds, "registration_ok", "registration_broken"), resp)
	}
	if r.ClientID != "" {
		r.find("registered_client", nil, "client_id "+quote(r.ClientID))
		return
	}
	accepted := r.server.has("client_id_metadata_document_supported") && (r.server.has(sendsIss) || !r.profile.NeedsIss)
	if r.profile.Document != "" && accepted {
		r.ClientID = r.profile.Document
		r.find("metadata_client", nil, "client_id "+quote(r.ClientID))
		return
	}
	r.report.Stopped = "Without a client_id the client cannot ask for consent. To continue, pass --client-id."
	switch {
	case r.profile.ClientIDSetting != "":
		setting, redirect := "the setting is "+r.profile.ClientIDSetting, "redirect_uri "+quote(r.redirect)
		r.stop("needs_registration", nil, setting, redirect)
	case r.profile.Document == "":
		r.stop("no_client_id", nil)
	}
	r.stop("unknown_client", nil)
}
