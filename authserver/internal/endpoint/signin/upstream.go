package signin

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/spelling"
)

// Two kinds of users may sign in at the deployment's OpenID Connect provider (decide): a user whose account at the
// provider is linked, and a user whose e-mail address the provider has verified and who has no other account there. The
// second gets linked. A sign-in never creates a user or a membership, and a disabled user stays signed out. If the
// address was never proven to be the user's, the sign-in ends all that the account has (useraccount.Takeover), after
// the person has read that and confirmed it.
//
// A sign-in counts as fresh from the time that the provider reports (auth_time), and not at all if it reports none,
// because the provider may have accepted an old session of the browser. A user who then creates a credential must
// authenticate again at /login/again. That request tells the provider to prompt, and the provider must report that it
// did.
//
// An attempt is bound to the browser that began it and accepts one response within ten minutes (package session, C1 to
// C3). Nothing from the caller's request is sent to the provider.

const (
	attemptLife  = 10 * time.Minute
	providerPath = "/settings/provider"
)

// providerRoutes returns the routes that need the provider.
func (h *Handler) providerRoutes() Routes {
	return Routes{
		"/login/upstream":          {"GET": h.page(upstream, h.startUpstream)},
		"/login/again/upstream":    {"GET": h.page(upstream, h.forUser("", h.reauthUpstream))},
		"/login/upstream/callback": {"GET": h.page(upstream, h.callback)},
		"/login/upstream/confirm":  {"POST": h.form(upstream, h.confirmTakeover)},
		"/settings/provider":       {"GET": h.page(upstream, h.forUser(providerPath, h.showProvider))},
		"/settings/provider/unlink": {
			"POST": h.form(upstream, h.forUser(providerPath, h.keyed(h.providerForms, h.fresh(h.unlink)))),
		},
	}
}

// An attempt is the stored state of one redirect to the provider.
type attempt struct {
	Attempt oidc.Attempt
	Return  string
	SignIn  uuid.UUID // the sign-in to reauthenticate, or uuid.Nil for a new sign-in
}

// startUpstream serves GET /login/upstream: 303 to the provider; ?return= is the local path that follows.
func (h *Handler) startUpstream(v *visit) error {
	next := ui.LocalPath(v.form.Get("return"), home)
	_, signedIn, err := h.Sessions.CurrentUser(v.r.Context())
	switch {
	case err != nil:
		return err
	case signedIn:
		return v.redirect(next)
	}
	return h.sendToProvider(v, attempt{Attempt: h.Provider.NewAttempt(false), Return: next})
}

// reauthUpstream serves GET /login/again/upstream: the same, to authenticate again while signed in.
func (h *Handler) reauthUpstream(v *visit) error {
	again := attempt{Attempt: h.Provider.NewAttempt(true), Return: v.next, SignIn: v.current.SignInID}
	return h.sendToProvider(v, again)
}

// sendToProvider redirects the browser to the provider.
func (h *Handler) sendToProvider(v *visit, a attempt) error {
	if v.r.Method != http.MethodGet { // a HEAD would begin an attempt that is never finished
		return h.getOnly(v)
	}
	ctx := v.r.Context()
	if v.limited(h.Attempts.Begun(ctx, h.address(v))) {
		return h.tellAttempt(v, a, "provider_attempts_limited")
	}
	address, err := h.Provider.Address(ctx, a.Attempt)
	if err == nil {
		by := h.Sessions.BindToBrowser(v.w, v.r)
		err = h.Sessions.BeginLogin(ctx, session.OIDCSignIn, by, a.Attempt.State, attemptLife, a)
	}
	if err != nil {
		return h.unreachable(v, a, err)
	}
	return v.redirect(address)
}

// getOnly refuses HEAD, which the router accepts wherever it accepts GET.
func (h *Handler) getOnly(v *visit) error {
	v.w.Header().Set("Allow", http.MethodGet)
	h.Pages.NotAllowed(v.w, v.r)
	return nil
}

// callback serves GET /login/upstream/callback (code, state): 303 to the return path, else a page.
func (h *Handler) callback(v *visit) error {
	if v.r.Method != http.MethodGet { // a HEAD would use up the provider's response
		return h.getOnly(v)
	}
	if !namesOnce(v.r.URL.RawQuery) {
		return h.noSuchAttempt(v)
	}
	var a attempt
	found, err := h.take(v, session.OIDCSignIn, v.form.Get("state"), &a)
	switch {
	case err != nil:
		return err
	case !found:
		return h.noSuchAttempt(v)
	case v.form.Get("error") == "temporarily_unavailable" || v.form.Get("error") == "server_error":
		return h.noResponse(v, a)
	case v.form.Get("error") != "" || v.form.Get("code") == "":
		// without the provider's text, because any link can contain text
		return h.tellAttempt(v, a, "provider_declined")
	}
	answer := oidc.Answer{Code: v.form.Get("code"), Issuer: v.form.Get("iss")}
	who, err := h.Provider.Identify(v.r.Context(), a.Attempt, answer)
	switch {
	case errors.Is(err, oidc.ErrRefused):
		h.Log.WarnContext(v.r.Context(), "upstream sign-in refused", "reason", err)
		return h.tellAttempt(v, a, "provider_answer_invalid")
	case err != nil:
		return h.unreachable(v, a, err)
	case a.SignIn != uuid.Nil:
		return h.prove(v, a, who)
	}
	return h.signInUpstream(v, a.Return, who, false)
}

// namesOnce reports whether a query is valid and no parameter occurs twice.
func namesOnce(query string) bool {
	values, err := url.ParseQuery(query)
	for _, given := range values {
		if len(given) > 1 {
			return false
		}
	}
	return err == nil
}

// take finishes a login state and decodes its data, if the same browser began it.
func (h *Handler) take(v *visit, purpose session.Purpose, secret string, data any) (bool, error) {
	by, known := h.Sessions.BoundToBrowser(v.r)
	if !known || secret == "" {
		return false, nil
	}
	return h.Sessions.TakeLogin(v.r.Context(), purpose, by, secret, data)
}

// signInUpstream signs in the user of an identity. confirmed says whether the person confirmed a takeover.
func (h *Handler) signInUpstream(v *visit, next string, who oidc.Identity, confirmed bool) error {
	user, verdict, err := h.decide(v, who, confirmed)
	switch {
	case err != nil:
		return err
	case verdict == unconfirmed:
		return h.askToTakeOver(v, user, pendingTakeover{Identity: who, Return: next})
	case verdict != welcome && verdict != tookOver:
		return h.refuseIdentity(v, next, user, verdict)
	}
	err = h.begin(v, user, proofOf(who))
	if err == nil && verdict == tookOver {
		err = h.Sessions.Flash(v.w, v.r, "Your e-mail address was confirmed. The account's earlier password, "+
			"passkeys, tokens and connections have ended, because another person may have created the account.")
	}
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		return h.noSuchAttempt(v)
	case err != nil:
		return err
	}
	return v.redirect(next)
}

func proofOf(who oidc.Identity) session.Proof {
	return session.Proof{Method: session.OIDC, Issuer: who.Issuer, Subject: who.Subject, ProvedAt: who.ProvedAt}
}

// prove records a reauthentication. The provider's account must already be linked to the user who is signed in.
func (h *Handler) prove(v *visit, a attempt, who oidc.Identity) error {
	current, signedIn, err := h.Sessions.CurrentUser(v.r.Context())
	if err != nil {
		return err
	}
	user, linked, err := h.Store.UserByIdentity(v.r.Context(), who.Issuer, who.Subject)
	switch {
	case err != nil:
		return err
	case !signedIn || current.SignInID != a.SignIn:
		return h.noSuchAttempt(v)
	case !linked || user.ID != current.User.ID:
		err = session.ErrProofInvalid
	default:
		err = h.Sessions.Reauthenticated(v.w, v.r, current, proofOf(who), h.address(v))
	}
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		return h.tellAttempt(v, a, "provider_other_account")
	case errors.Is(err, audit.ErrNotAuthorized): // signed out since the request began
		return h.noSuchAttempt(v)
	case err != nil:
		return err
	}
	return v.redirect(a.Return)
}

// A verdict is the decision about an identity.
type verdict string

const (
	welcome     verdict = ""
	tookOver    verdict = "took_over"     // welcome, and what the account had before has ended
	unconfirmed verdict = "unconfirmed"   // welcome after a confirmation that all that the account had ends
	unknown     verdict = "unknown"       // no user has this identity
	taken       verdict = "other_account" // linked to another account there: the address now is another person's
	disabled    verdict = "disabled"
)

// decide returns the user of an identity, if there is one. It links an identity that is not linked yet if the provider
// has verified an e-mail address of the user. If the user's address was not proven before, all that the account had
// ends first: another person may have created it. That needs the confirmation of the person at the browser, because a
// link on another site can begin a sign-in that a session at the provider completes.
func (h *Handler) decide(v *visit, who oidc.Identity, confirmed bool) (workspace.User, verdict, error) {
	ctx := v.r.Context()
	user, known, err := h.Store.UserByIdentity(ctx, who.Issuer, who.Subject)
	if err != nil {
		return user, unknown, err
	}
	linked := known
	if !known && who.Email != "" {
		if user, _, known, err = h.Store.UserByEmail(ctx, who.Email); err != nil {
			return user, unknown, err
		}
	}
	switch {
	case !known:
		return user, unknown, nil
	case user.DisabledAt != nil:
		return user, disabled, nil
	case linked && (user.Proven || spelling.Key(who.Email) != spelling.Key(user.Email)):
		return user, welcome, nil
	}
	subject := "user:" + user.ID.String()
	event := h.event(v, audit.IdentityLinked, subject, map[string]any{"issuer": who.Issuer})
	event.UserID, event.Actor = &user.ID, subject
	added, over, err := h.Store.LinkIdentity(ctx, user.ID, user.Email, who.Issuer, who.Subject, confirmed, event)
	switch {
	case errors.Is(err, useraccount.ErrTakeover):
		return user, unconfirmed, nil
	case err == nil && !added:
		return user, taken, nil
	case over == nil:
		return user, welcome, err
	}
	for _, g := range over.Grants {
		h.PropagateRevocation(ctx, g.ID, g.Ends, grant.AddressProven)
	}
	return user, tookOver, nil
}

// refuseIdentity records that a person whom the provider has authenticated may not sign in, and says why.
func (h *Handler) refuseIdentity(v *visit, next string, user workspace.User, why verdict) error {
	detail := map[string]any{"method": session.OIDC, "reason": string(why), "issuer": h.issuer}
	event := h.event(v, audit.SignInRefused, "user:unknown", detail)
	if why != unknown {
		event.UserID, event.Subject = &user.ID, "user:"+user.ID.String()
	}
	if err := h.Store.Record(v.r.Context(), event); err != nil {
		return err
	}
	return h.tellAttempt(v, attempt{Return: next}, "identity_"+string(why))
}

// pendingTakeover is the stored state of a sign-in until the person confirms the takeover.
type pendingTakeover struct {
	Identity oidc.Identity
	Return   string
}

// askToTakeOver shows what a takeover ends. The form completes the sign-in, once and at this browser.
func (h *Handler) askToTakeOver(v *visit, user workspace.User, p pendingTakeover) error {
	key := rand.Text()
	by := h.Sessions.BindToBrowser(v.w, v.r)
	if err := h.Sessions.BeginLogin(v.r.Context(), session.OIDCTakeover, by, key, attemptLife, p); err != nil {
		return err
	}
	page := &ui.Takeover{Frame: ui.Frame{Return: p.Return}, Key: key, Email: user.Email}
	page.Title = "Confirm your e-mail address"
	return h.show(v, http.StatusOK, page)
}

// confirmTakeover serves POST /login/upstream/confirm (key): 303 to the return path, after a page that says what this
// ends.
func (h *Handler) confirmTakeover(v *visit) error {
	var p pendingTakeover
	found, err := h.take(v, session.OIDCTakeover, v.form.Get("key"), &p)
	if err != nil {
		return err
	}
	_, signedIn, err := h.Sessions.CurrentUser(v.r.Context())
	switch {
	case err != nil:
		return err
	case found:
		return h.signInUpstream(v, p.Return, p.Identity, true)
	case signedIn: // the form was sent twice
		return v.redirect(home)
	}
	return h.noSuchAttempt(v)
}

// showProvider serves GET /settings/provider: whether the user's account there is linked.
func (h *Handler) showProvider(v *visit) error {
	return h.showLink(v, http.StatusOK, "")
}

// showLink shows whether the user's account is linked.
func (h *Handler) showLink(v *visit, status int, problem string) error {
	since, linked, err := h.Store.IdentitySince(v.r.Context(), v.current.User.ID, h.issuer)
	if err != nil {
		return err
	}
	frame, err := h.securityFrame(v, "Sign-in with "+h.ProviderName)
	if err != nil {
		return err
	}
	frame.Problem = problem
	return h.show(v, status, &ui.Provider{
		Frame:  frame,
		Key:    formKey(h.providerForms, v),
		Name:   h.ProviderName,
		Linked: linked,
		Since:  since,
		Fresh:  v.current.MayChangeFactors(h.Now()),
	})
}

// unlink serves POST /settings/provider/unlink (key): refused if the user could not sign in without it.
func (h *Handler) unlink(v *visit) error {
	user, detail := v.current.User.ID, map[string]any{"issuer": h.issuer}
	event := h.ownEvent(v, audit.IdentityUnlinked, "user:"+user.String(), detail)
	unlinked, needed, err := h.Store.UnlinkIdentity(v.r.Context(), user, h.issuer, h.RelyingParty != nil, event)
	switch {
	case err != nil:
		return err
	case needed:
		return h.showLink(v, http.StatusConflict, "You need "+h.ProviderName+" to sign in. Before you unlink it, add "+
			"a passkey or ask an administrator to set a password.")
	case !unlinked:
		return h.done(v, providerPath, "No "+h.ProviderName+" account was linked.")
	}
	return h.done(v, providerPath, "Your "+h.ProviderName+" account was unlinked.")
}

// tellAttempt shows a message with a link back to the page that an attempt began at.
func (h *Handler) tellAttempt(v *visit, a attempt, name string) error {
	link := ui.Link{Href: signInPath(a.Return), Text: "Back to the sign-in page"}
	if a.Attempt.Proof {
		link = ui.Link{Href: reauthPath(a.Return), Text: "Use another method"}
	}
	return h.tell(v, name, link)
}

// unreachable shows that the provider does not respond. It returns other errors.
func (h *Handler) unreachable(v *visit, a attempt, err error) error {
	if !errors.Is(err, oidc.ErrUnreachable) {
		return err
	}
	h.Log.ErrorContext(v.r.Context(), "identity provider does not respond", "error", err)
	return h.noResponse(v, a)
}

func (h *Handler) noResponse(v *visit, a attempt) error {
	v.w.Header().Set("Retry-After", "30")
	return h.tellAttempt(v, a, "provider_silent")
}

// noSuchAttempt responds to a callback that belongs to no attempt of this browser.
func (h *Handler) noSuchAttempt(v *visit) error {
	if _, known := h.Sessions.BoundToBrowser(v.r); !known {
		return h.tell(v, "attempt_without_cookie")
	}
	return h.tell(v, "attempt_unknown")
}
