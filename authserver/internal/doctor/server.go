package doctor

import (
	"context"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
)

// server is the authorization server as its document describes it.
type server struct {
	issuer      string
	authorize   string // endpoint
	token       string // endpoint
	revoke      string // endpoint, "" for none
	saysIss     bool
	documents   bool // client id metadata documents
	register    string
	scopes      []string
	sound       bool // the required endpoints are usable
	offlineable bool // offers offline_access
	repeats     bool // supports Idempotency-Key at the token endpoint
}

// readServer judges the members of the document (RFC 8414, section 2; connectors, Discovery).
func (w *run) readServer(d document) {
	s := server{
		issuer:    d.text("issuer"),
		authorize: d.text("authorization_endpoint"),
		token:     d.text("token_endpoint"),
		revoke:    d.text("revocation_endpoint"),
		register:  d.text("registration_endpoint"),
		saysIss:   d.values["authorization_response_iss_parameter_supported"] == true,
		documents: d.values["client_id_metadata_document_supported"] == true,
		scopes:    d.list("scopes_supported"),
		repeats:   d.values["token_endpoint_idempotency_key_supported"] == true,
	}
	s.offlineable = has(s.scopes, "offline_access")
	before := w.report.Count(Fail)
	w.judgeIdentity(d, s)
	s.sound = w.judgeEndpoints(d, s)
	w.judgeAbilities(d, s)
	w.server = s
	if w.report.Count(Fail) == before {
		w.find(
			"server_ok",
			d.answer,
			"issuer "+quote(s.issuer)+", authorization endpoint "+s.authorize+", token endpoint "+s.token,
		)
	}
}

func (w *run) judgeIdentity(d document, s server) {
	switch {
	case s.issuer == "":
		w.find("no_issuer", d.answer)
	case s.issuer != w.offered.issuer:
		w.find("issuer_differs", d.answer, difference(s.issuer, w.offered.issuer))
	}
	switch {
	case !s.saysIss && w.profile.wantsIss && w.ClientID == "":
		w.find("no_iss_no_document", d.answer)
	case !s.saysIss:
		w.find("no_iss", d.answer)
	}
}

// judgeEndpoints reports whether the required endpoints are usable.
func (w *run) judgeEndpoints(d document, s server) bool {
	sound := true
	for _, e := range []struct{ name, address, code string }{
		{"authorization_endpoint", s.authorize, "no_authorization_endpoint"},
		{"token_endpoint", s.token, "no_token_endpoint"},
	} {
		if e.address == "" {
			w.find(e.code, d.answer)
			sound = false
		} else if !w.usable(e.address, e.name, d.answer) {
			sound = false
		}
	}
	if s.revoke != "" {
		w.usable(s.revoke, "revocation_endpoint", d.answer)
	}
	return sound
}

func (w *run) judgeAbilities(d document, s server) {
	methods := d.list("code_challenge_methods_supported")
	switch {
	case len(methods) == 0:
		w.find("no_pkce", d.answer)
	case !has(methods, "S256"):
		w.find("no_s256", d.answer, "offered: "+strings.Join(methods, ", "))
	}
	if !has(d.list("token_endpoint_auth_methods_supported"), "none") {
		w.find(
			"no_public_clients",
			d.answer,
			"offered: "+strings.Join(d.list("token_endpoint_auth_methods_supported"), ", "),
		)
	}
	if !has(d.list("response_types_supported"), "code") {
		w.find("no_code", d.answer)
	}
	if grants := d.list("grant_types_supported"); !has(grants, "refresh_token") {
		w.find("no_refresh", d.answer)
	}
	if !s.offlineable {
		w.find("no_offline_access", d.answer)
	}
	var unknown []string
	for _, scope := range strings.Fields(w.offered.scope) {
		if len(s.scopes) > 0 && !has(s.scopes, scope) {
			unknown = append(unknown, scope)
		}
	}
	if len(unknown) > 0 {
		w.find("scopes_disagree", d.answer, "not in scopes_supported: "+strings.Join(unknown, " "))
	}
}

// identify determines the client_id: the given one, the client's metadata document, or open registration.
func (w *run) identify(ctx context.Context) error {
	if w.server.register != "" {
		if err := w.tryRegistration(ctx); err != nil {
			return err
		}
	}
	switch {
	case w.ClientID != "":
		w.find("registered_client", nil, "client_id "+quote(w.ClientID))
	case w.profile.document != "" && w.server.documents && (w.server.saysIss || !w.profile.wantsIss):
		w.ClientID = w.profile.document
		w.find("metadata_client", nil, "client_id "+quote(w.ClientID))
	default:
		switch {
		case w.profile.clientID != "":
			w.find("needs_registration", nil, "the setting is "+w.profile.clientID, "redirect_uri "+quote(w.redirect))
		case w.profile.document == "":
			w.find("no_client_id", nil)
		default:
			w.find("unknown_client", nil)
		}
		w.report.Stopped = "Without a client_id the client cannot ask for consent. To continue, pass --client-id."
		return errStop
	}
	return nil
}

// tryRegistration sends a registration that must be refused, so that nothing is created: it only checks
// whether the endpoint responds (RFC 7591, section 3.2.2).
func (w *run) tryRegistration(ctx context.Context) error {
	if !w.usable(w.server.register, "registration_endpoint", nil) {
		return nil
	}
	answer, err := w.send(ctx, wire.Request{
		Method: http.MethodPost,
		URL:    w.server.register,
		Note:   "a registration without redirect URIs",
		Body:   `{"redirect_uris":[]}`,
		Within: w.DiscoveryTimeout,
		Header: map[string]string{"Content-Type": "application/json", "Accept": "application/json"},
	})
	if err != nil {
		return err
	}
	if answer.Status == http.StatusBadRequest || answer.Status == http.StatusCreated {
		w.find("registration_ok", answer)
	} else {
		w.find("registration_broken", answer)
	}
	return nil
}
