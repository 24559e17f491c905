package doctor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
	"github.com/almonerhq/almoner/shared/credential"
)

// An attempt is one authorization request.
type attempt struct {
	refused  *wire.Answer // of the token endpoint, if that does not know the client
	state    string
	verifier credential.Secret
	address  string // of the request
	code     credential.Secret
}

// authorize sends the client's request and gets a code, if the user can consent.
func (w *run) authorize(ctx context.Context) error {
	w.attempt = w.newAttempt()
	if err := w.probeToken(ctx); err != nil {
		return err
	}
	if err := w.probeAuthorize(ctx); err != nil {
		return err
	}
	var answered string // the address that the browser was sent to
	var err error
	switch {
	case w.Email != "":
		answered, err = w.consent(ctx)
	case w.Browser:
		answered, err = w.await(ctx)
	case w.Pasted != nil:
		answered, err = w.readPasted(ctx)
	default:
		w.report.Stopped = "No user signed in. To continue, use --browser, --callback-stdin, or --email and " +
			"--password-file."
		return errStop
	}
	if err != nil {
		return err
	}
	return w.judgeCallback(answered)
}

// newAttempt makes the request as the connectors send it: with a space before the scope, offline_access,
// prompt=consent, and an unknown parameter.
func (w *run) newAttempt() attempt {
	a := attempt{state: rand.Text(), verifier: credential.Secret(rand.Text() + rand.Text())}
	w.secrets.Add(a.verifier)
	sum := sha256.Sum256([]byte(a.verifier.Reveal()))
	scopes := strings.Fields(w.offered.scope)
	if len(scopes) == 0 {
		scopes = w.offered.scopes
	}
	query := url.Values{
		"response_type": {"code"}, "client_id": {w.ClientID}, "redirect_uri": {w.redirect}, "state": {a.state},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
		"resource": {w.offered.resource}, "almoner_doctor": {"1"},
	}
	if w.server.offlineable {
		query.Set("scope", " "+strings.Join(append(scopes[:len(scopes):len(scopes)], "offline_access"), " "))
		query.Set("prompt", "consent")
	} else if len(scopes) > 0 {
		query.Set("scope", strings.Join(scopes, " "))
	}
	separator := "?"
	if strings.Contains(w.server.authorize, "?") {
		separator = "&"
	}
	a.address = w.server.authorize + separator + query.Encode()
	return a
}

// probeToken sends a code that was never issued. Clients act on the error of the token endpoint, so it must
// be an OAuth error.
func (w *run) probeToken(ctx context.Context) error {
	answer, err := w.send(ctx, wire.Form(w.server.token, url.Values{
		"grant_type":    {"authorization_code"},
		"client_id":     {w.ClientID},
		"code":          {"almoner-doctor"},
		"redirect_uri":  {w.redirect},
		"code_verifier": {strings.Repeat("almoner-doctor-", 4)},
		"resource":      {w.offered.resource},
	}.Encode(), tokenLimit))
	if err != nil {
		return err
	}
	answer.Request.Note = "an unknown code"
	switch code := oauthError(answer); {
	case answer.Status >= 300 && answer.Status < 400:
		w.find("token_redirects", answer)
	case code == "":
		w.find("token_no_oauth_error", answer)
	case code == "invalid_client" && !w.byDocument(): // the server may fetch a document at the first consent
		w.attempt.refused = answer
	case answer.Status != http.StatusBadRequest && answer.Status != http.StatusUnauthorized:
		w.find("token_probe_status", answer, w.described(answer))
	default:
		w.find("token_probe_ok", answer, w.described(answer))
	}
	return nil
}

// byDocument reports whether the client is known by its metadata document.
func (w *run) byDocument() bool { return strings.HasPrefix(w.ClientID, "https://") }

// described returns the error of a response, in the format of OAuth or of a resource server.
func (w *run) described(answer *wire.Answer) string {
	values, err := readObject(answer.Body)
	if err != nil {
		return ""
	}
	code, _ := values["error"].(string)
	text, _ := values["error_description"].(string)
	if nested, ok := values["error"].(map[string]any); ok { // the format of resource servers
		code, _ = nested["code"].(string)
		text, _ = nested["message"].(string)
	}
	if code == "" || text == "" {
		return code + text
	}
	return code + ": " + text
}

// probeAuthorize opens the request without a sign-in.
func (w *run) probeAuthorize(ctx context.Context) error {
	answer, err := w.send(ctx, w.open(w.attempt.address, "not signed in", false))
	if err != nil {
		return err
	}
	if refused := w.attempt.refused; refused != nil {
		if w.knowsClient(answer) {
			w.find("confidential_client", refused, w.described(refused))
			return errStop
		}
		w.find("token_unknown_client", refused, w.described(refused))
	}
	location := answer.Header.Get("Location")
	switch {
	case answer.Status >= 300 && answer.Status < 400 && strings.HasPrefix(location, w.redirect):
		return w.judgeEarly(answer, location)
	case answer.Status == http.StatusTemporaryRedirect || answer.Status == http.StatusPermanentRedirect:
		w.find("authorize_307", answer)
	case answer.Status >= 300 && answer.Status < 400:
		w.find("authorize_ok", answer)
	case answer.Status == http.StatusOK:
		w.find("authorize_ok", answer, saidBy(answer))
	case w.byDocument() && answer.Status >= 400:
		w.find(
			"document_not_taken",
			answer,
			saidBy(answer),
			"client_id "+quote(w.ClientID),
			"redirect_uri "+quote(w.redirect),
		)
		return errStop
	case answer.Status >= 500:
		w.find("authorize_fails", answer, saidBy(answer))
		return errStop
	case w.profile.port != "" && w.RedirectURI == "" && w.attempt.refused == nil:
		w.find("port_not_registered", answer, saidBy(answer), "the setting is "+w.profile.port,
			"redirect_uri "+quote(w.redirect))
		return errStop
	default:
		w.find(
			"authorize_refused",
			answer,
			saidBy(answer),
			"client_id "+quote(w.ClientID),
			"redirect_uri "+quote(w.redirect),
		)
		return errStop
	}
	return nil
}

// knowsClient reports whether the authorization endpoint shows a sign-in page, or returns to the client. A redirect to
// a sign-in page says nothing about the client.
func (w *run) knowsClient(answer *wire.Answer) bool {
	if answer.Status != http.StatusOK {
		return strings.HasPrefix(answer.Header.Get("Location"), w.redirect)
	}
	p, ok := readPage(answer)
	return ok && slices.ContainsFunc(p.forms(), func(f form) bool { return f.password != "" })
}

// judgeEarly judges a response that returned to the client before the sign-in.
func (w *run) judgeEarly(answer *wire.Answer, location string) error {
	parsed, err := url.Parse(location)
	if err != nil {
		w.find("callback_unreadable", answer)
		return errStop
	}
	if code := parsed.Query().Get("code"); code != "" {
		w.secrets.Add(credential.Secret(code))
		w.find("code_without_consent", answer)
		return errStop
	}
	w.findError("authorize_error", answer, parsed.Query())
	return errStop
}

// findError records an error that was returned to the client.
func (w *run) findError(code string, answer *wire.Answer, query url.Values) {
	if query.Get("error") == "invalid_target" { // RFC 8707, section 2
		code = "other_resource"
	}
	w.find(code, answer, query.Get("error")+": "+query.Get("error_description"))
}

// open makes a request for a page, as a browser does.
func (w *run) open(address, note string, browsing bool) wire.Request {
	return wire.Request{
		Method:   http.MethodGet,
		URL:      address,
		Note:     note,
		Within:   callLimit,
		Browsing: browsing,
		Header:   map[string]string{"Accept": "text/html"},
	}
}

// judgeCallback checks the final address of the browser (RFC 6749, section 4.1.2; RFC 9207).
func (w *run) judgeCallback(address string) error {
	parsed, err := url.Parse(address)
	if err != nil {
		w.find("callback_unreadable", nil)
		return errStop
	}
	query := parsed.Query()
	w.attempt.code = credential.Secret(query.Get("code"))
	w.secrets.Add(w.attempt.code)
	if before, _, _ := strings.Cut(address, "?"); before != strings.SplitN(w.redirect, "?", 2)[0] {
		w.find("callback_elsewhere", nil, w.secrets.Address(address))
		return errStop
	}
	if len(query["code"]) > 1 || len(query["state"]) > 1 || len(query["iss"]) > 1 {
		w.find("callback_twice", nil)
	}
	w.judgeIss(query)
	if query.Get("state") != w.attempt.state {
		w.find("state_differs", nil)
		return errStop
	}
	switch {
	case query.Get("error") != "":
		w.findError("callback_error", nil, query)
		return errStop
	case w.attempt.code == "":
		w.find("callback_without_code", nil)
		return errStop
	}
	w.find("callback_ok", nil)
	return nil
}

func (w *run) judgeIss(query url.Values) {
	iss := query.Get("iss")
	switch {
	case iss == "" && w.server.saysIss:
		w.find("iss_missing", nil)
	case iss != "" && !w.server.saysIss:
		w.find("iss_not_advertised", nil)
	case iss != "" && iss != w.server.issuer:
		w.find("iss_differs", nil, difference(iss, w.server.issuer))
	}
}
