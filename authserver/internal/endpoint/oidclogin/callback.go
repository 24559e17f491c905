package oidclogin

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/signin/loginstate"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

// Callback serves GET /login/upstream/callback.
func (h *Handler) Callback(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // a HEAD would use up the provider's response
		h.getOnly(w, r)
		return
	}
	answer, ok := single(r.URL.RawQuery)
	if !ok {
		h.notOurs(w, r)
		return
	}
	b, found, err := h.take(r, answer["state"])
	switch {
	case err != nil:
		h.fail(w, r, err)
		return
	case !found:
		h.notOurs(w, r)
		return
	case answer["error"] != "" || answer["code"] == "":
		h.declined(w, r, b, answer["error"])
		return
	}
	who, err := h.Provider.Identify(r.Context(), b.Attempt, oidc.Answer{Code: answer["code"], Issuer: answer["iss"]})
	switch {
	case errors.Is(err, oidc.ErrRefused):
		h.Log.WarnContext(r.Context(), "upstream sign-in refused", "reason", err)
		h.notVerified(w, r, b)
	case err != nil:
		h.failAttempt(w, r, b, err)
	case b.SignIn != uuid.Nil:
		h.prove(w, r, b, who)
	default:
		h.signIn(w, r, b.Return, who, false)
	}
}

// take returns the attempt that the response belongs to, if the same browser began it.
func (h *Handler) take(r *http.Request, state string) (begun, bool, error) {
	var b begun
	by, known := h.Ceremonies.BoundToBrowser(r)
	if !known || state == "" {
		return b, false, nil
	}
	found, err := h.Ceremonies.Take(r.Context(), loginstate.OIDCSignIn, by, state, &b)
	return b, found, err
}

// single parses a query. It returns false if a parameter occurs twice.
func single(query string) (map[string]string, bool) {
	values, err := url.ParseQuery(query)
	out := map[string]string{}
	for name, given := range values {
		if len(given) > 1 {
			return nil, false
		}
		out[name] = given[0]
	}
	return out, err == nil
}

// signIn signs in the user of an identity. confirmed says whether the person confirmed a takeover.
func (h *Handler) signIn(w http.ResponseWriter, r *http.Request, next string, who oidc.Identity, confirmed bool) {
	user, verdict, err := h.decide(r, who, confirmed)
	switch {
	case err != nil:
		h.fail(w, r, err)
		return
	case verdict == unconfirmed:
		h.askToTakeOver(w, r, user, pendingTakeover{Identity: who, Return: next})
		return
	case verdict != welcome && verdict != tookOver:
		h.refuse(w, r, begun{Return: next}, verdict)
		return
	}
	by, event := session.Arrival(r, user, proofOf(who), h.Proxies.ClientAddress(r))
	by.AuthenticatedAt = who.ProvedAt
	event.Detail["issuer"] = who.Issuer
	err = h.Sessions.Begin(w, r, by, event)
	if err == nil && verdict == tookOver {
		err = h.Sessions.Flash(w, r, "Your e-mail address was confirmed. The account's earlier password, passkeys, "+
			"tokens and connections have ended, because another person may have created the account.")
	}
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		h.notOurs(w, r)
	case err != nil:
		h.fail(w, r, err)
	default:
		goOn(w, next)
	}
}

func proofOf(who oidc.Identity) session.Proof {
	return session.Proof{Method: session.OIDC, Issuer: who.Issuer, Subject: who.Subject}
}

// prove records a reauthentication. The provider's account must already be linked to the user who is signed in.
func (h *Handler) prove(w http.ResponseWriter, r *http.Request, b begun, who oidc.Identity) {
	current, signedIn, err := h.Sessions.CurrentUser(r.Context())
	if err != nil {
		h.fail(w, r, err)
		return
	}
	user, linked, err := h.Identities.UserByIdentity(r.Context(), who.Issuer, who.Subject)
	switch {
	case err != nil:
		h.fail(w, r, err)
		return
	case !signedIn || current.SignInID != b.SignIn:
		h.notOurs(w, r)
		return
	case !linked || user.ID != current.User.ID:
		h.otherAccount(w, r, b)
		return
	}
	event := current.Event(r.Context(), audit.SignInProved, "sign_in:"+current.SignInID.String())
	event.Detail = map[string]any{
		"method":  session.OIDC,
		"issuer":  who.Issuer,
		"address": h.Proxies.ClientAddress(r).String(),
	}
	err = h.Sessions.Reauthenticated(w, r, current, proofOf(who), event)
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		h.otherAccount(w, r, b)
	case errors.Is(err, audit.ErrNotAuthorized): // signed out since the request began
		h.notOurs(w, r)
	case err != nil:
		h.fail(w, r, err)
	default:
		goOn(w, b.Return)
	}
}
