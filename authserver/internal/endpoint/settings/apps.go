package settings

import (
	"net/http"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

const appsPath = "/settings/apps"

// Apps serves GET /settings/apps.
func (h *Handler) Apps() http.Handler {
	return h.page(func(v *request) error {
		connections, err := h.Store.ConnectedApps(v.r.Context(), v.current.User.ID)
		if err != nil {
			return err
		}
		frame, err := h.frame(v, "apps", "Connected apps")
		if err != nil {
			return err
		}
		view := &ui.Apps{Frame: frame, Key: h.newKey(v.current)}
		for _, c := range connections {
			if c.Live(h.Now()) {
				live := connectionView(c, "")
				if live.Paused = paused(c); live.Paused == "" {
					live.Without = c.Without()
				}
				view.Live = append(view.Live, live)
			} else {
				view.Ended = append(view.Ended, connectionView(c, endedGrant(c)))
			}
		}
		h.Pages.Show(v.w, v.r, http.StatusOK, view)
		return nil
	})
}

func connectionView(c consent.Connection, ended string) ui.Connection {
	return ui.Connection{
		ID:          c.Grant.ID.String(),
		Application: c.Application,
		Workspace:   c.Workspace,
		Permissions: c.Grant.Permissions,
		Since:       c.Grant.Created,
		LastUsed:    c.Grant.LastUsed,
		Ends:        c.Grant.Ends,
		Ended:       ended,
		EndedAt:     endedAt(c.Grant),
		Narrowed:    c.NarrowedAt,
		Alarming: c.Grant.Reason == grant.Replayed || c.Grant.Reason == grant.CodeReused ||
			c.Grant.Reason == grant.CodeGuessed,
	}
}

// paused returns why a connection cannot do anything now, or "".
func paused(c consent.Connection) string {
	switch c.Blocked() {
	case grant.NotMember:
		return "You are no longer a member of " + c.Workspace + ", so " + c.Application + " has no access to it."
	case grant.LLMOff:
		return "The LLM integration of " + c.Workspace + " is switched off. " + c.Application +
			" has no access until an administrator switches it on."
	case grant.PermissionsLost:
		return "You no longer have any of these permissions in " + c.Workspace + ". " + c.Application +
			" has no access until an administrator gives them back to you."
	}
	return ""
}

// endedGrant tells the user why a connection ended.
func endedGrant(c consent.Connection) string {
	if c.Grant.State != grant.Revoked {
		return "The access that you gave to " + c.Application + " has expired."
	}
	we := "We disconnected " + c.Application
	switch c.Grant.Reason {
	case grant.Replayed:
		return we + " because an old sign-in key was used again. It may have been copied."
	case grant.CodeReused:
		return we + " because a one-time sign-in code was used again. It may have been copied."
	case grant.CodeGuessed:
		return we + " after five failed attempts to use a one-time sign-in code."
	case grant.ByUser:
		return "You disconnected " + c.Application + "."
	case grant.MembershipOver:
		return "Your membership of " + c.Workspace + " ended."
	}
	return c.Grant.Reason.Explain(c.Application, nil)
}

func endedAt(g grant.Grant) time.Time {
	if g.State == grant.Revoked && g.RevokedAt != nil {
		return *g.RevokedAt
	}
	return g.Ends
}

// Disconnect serves POST /settings/apps/disconnect.
func (h *Handler) Disconnect() http.Handler {
	return h.form(appsPath, func(v *request) error {
		id, ok := v.id()
		connections, err := h.Store.ConnectedApps(v.r.Context(), v.current.User.ID)
		if err != nil {
			return err
		}
		for _, c := range connections {
			if !ok || c.Grant.ID != id || c.Grant.State == grant.Revoked {
				continue
			}
			if err := h.Grants.Revoke(v.r.Context(), c.Grant, grant.ByUser, v.current.Actor()); err != nil {
				return err
			}
			return h.done(v, appsPath, c.Application+" was disconnected from "+c.Workspace+".")
		}
		return h.done(v, appsPath, "The application is no longer connected.")
	})
}
