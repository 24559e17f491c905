package oidclogin

import (
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/spelling"
	"github.com/almonerhq/almoner/shared/web"
)

// A verdict is the decision about an identity.
type verdict string

const (
	welcome verdict = ""
	// the user is welcome, and what the account had before has ended
	tookOver verdict = "took_over"
	// the user is welcome if they confirm that all that the account had ends
	unconfirmed verdict = "unconfirmed"
	unknown     verdict = "unknown" // no user has this identity
	// the user is linked to another account there: the e-mail address now belongs to another person
	taken    verdict = "other_account"
	disabled verdict = "disabled"
)

// decide returns the user of an identity, if there is one. It links an identity that is not linked yet if the provider
// has verified an e-mail address of the user. It records every refusal. If the user's address was not proven before,
// all that the account had ends first: another person may have created it. That needs the confirmation of the person at
// the browser, because a link on another site can begin a sign-in that a session at the provider completes.
func (h *Handler) decide(r *http.Request, who oidc.Identity, confirmed bool) (workspace.User, verdict, error) {
	ctx := r.Context()
	user, known, err := h.Identities.UserByIdentity(ctx, who.Issuer, who.Subject)
	if err != nil {
		return user, unknown, err
	}
	linked := known
	if !known && who.Email != "" {
		if user, _, known, err = h.Identities.UserByEmail(ctx, who.Email); err != nil {
			return user, unknown, err
		}
	}
	switch {
	case !known:
		return user, unknown, h.record(r, user, unknown)
	case user.DisabledAt != nil:
		return user, disabled, h.record(r, user, disabled)
	case linked && (user.Proven || spelling.Key(who.Email) != spelling.Key(user.Email)):
		return user, welcome, nil
	}
	event := audit.Event{
		UserID:    &user.ID,
		Actor:     "user:" + user.ID.String(),
		Action:    audit.IdentityLinked,
		Subject:   "user:" + user.ID.String(),
		RequestID: web.RequestID(ctx),
		Detail:    map[string]any{"issuer": who.Issuer, "address": h.Proxies.ClientAddress(r).String()},
	}
	made, over, err := h.Identities.LinkIdentity(ctx, user.ID, user.Email, who.Issuer, who.Subject, confirmed, event)
	if errors.Is(err, useraccount.ErrTakeover) {
		return user, unconfirmed, nil
	}
	if err == nil && !made {
		return user, taken, h.record(r, user, taken)
	}
	if over != nil {
		for _, g := range over.Grants {
			h.PropagateRevocation(ctx, g.ID, g.Ends)
		}
		return user, tookOver, nil
	}
	return user, welcome, err
}

func (h *Handler) record(r *http.Request, user workspace.User, why verdict) error {
	event := audit.Event{
		Actor:     "anonymous",
		Action:    audit.SignInRefused,
		Subject:   "user:unknown",
		RequestID: web.RequestID(r.Context()),
		Detail: map[string]any{
			"method":  session.OIDC,
			"reason":  string(why),
			"issuer":  h.Provider.Issuer(),
			"address": h.Proxies.ClientAddress(r).String(),
		},
	}
	if why != unknown {
		event.UserID, event.Subject = &user.ID, "user:"+user.ID.String()
	}
	return h.Identities.Record(r.Context(), event)
}
