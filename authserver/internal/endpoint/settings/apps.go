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
				view.Ended = append(view.Ended, connectionView(c, endedGrant(c.Grant)))
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
		Narrowed:    c.NarrowedAt,
		Alarming: c.Grant.Reason == grant.Replayed || c.Grant.Reason == grant.CodeReused ||
			c.Grant.Reason == grant.CodeGuessed,
	}
}

func moment(at time.Time) string { return at.UTC().Format("2 January 2006 at 15:04:05 UTC") }

// paused returns why a connection cannot do anything now, or "".
func paused(c consent.Connection) string {
	switch c.Blocked() {
	case grant.NotMember:
		return "You are no longer a member of " + c.Workspace + ", so " + c.Application + " can do nothing there."
	case grant.LLMOff:
		return c.Workspace + " has switched its LLM integration off, so " + c.Application +
			" can do nothing there until it is on again."
	case grant.PermissionsLost:
		return "You no longer hold any of these permissions in " + c.Workspace + ", so " + c.Application +
			" can do nothing there until you do."
	}
	return ""
}

func endedGrant(g grant.Grant) string {
	switch {
	case g.State != grant.Revoked:
	case g.Reason == grant.ByUser:
		return "You disconnected this application on " + moment(*g.RevokedAt) + "."
	case g.Reason == grant.MembershipOver:
		return "Your membership of the workspace ended on " + moment(*g.RevokedAt) + "."
	default:
		return g.Reason.Words(g.RevokedAt)
	}
	return "Its time was over on " + g.Ends.UTC().Format("2 January 2006") + "."
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
			return h.done(v, appsPath, c.Application+" is disconnected from "+c.Workspace+".")
		}
		return h.done(v, appsPath, "That application is no longer connected.")
	})
}
