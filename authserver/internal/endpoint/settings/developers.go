package settings

import (
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/web"
)

const developersPath = "/settings/developers"

// Developers serves GET /settings/developers.
func (h *Handler) Developers() http.Handler {
	return h.page(func(v *request) error {
		here, err := h.at(v, v.r.URL.Query().Get("tenant"), developersPath)
		if err != nil {
			return err
		}
		return h.showDevelopers(v, here, http.StatusOK, func(*ui.Developers) {})
	})
}

// developer serves a POST that concerns one of the user's workspaces.
func (h *Handler) developer(serve func(*request, workspaceScope) error) http.Handler {
	return h.form(developersPath, func(v *request) error {
		here, err := h.at(v, v.form.Get("tenant"), developersPath)
		if err != nil {
			return err
		}
		return serve(v, here)
	})
}

// showDevelopers shows the current page, changed by adjust.
func (h *Handler) showDevelopers(v *request, here workspaceScope, status int, adjust func(*ui.Developers)) error {
	tokens, err := h.Store.Tokens(v.r.Context(), v.current.User.ID, here.Workspace.ID)
	if err != nil {
		return err
	}
	clients, err := h.Store.Clients(v.r.Context(), here.Workspace.ID)
	if err != nil {
		return err
	}
	proof, err := h.proof(v)
	if err != nil {
		return err
	}
	frame, err := h.frameAt(v, here, "developers", "Developers")
	if err != nil {
		return err
	}
	view := &ui.Developers{
		Frame:      frame,
		Key:        h.newKey(v.current),
		Workspaces: workspaces(here.all, &here.Membership),
		Workspace:  workspaceView(here.Membership),
		BaseURL:    h.BaseURL,
		Held:       here.Permissions,
		Proof:      proof,
		Resources:  h.Resources,
		NewToken: ui.TokenForm{
			Days:     30,
			Lifetime: pat.Lifetimes(),
		},
		NewApp: ui.AppForm{Kind: string(client.Confidential), Resource: h.BaseURL + "/mcp"}, // which assistants use
	}
	h.listTokens(view, tokens)
	for _, c := range clients {
		view.Apps = append(view.Apps, ui.App{
			ID:        c.ID.String(),
			Name:      c.Name,
			Connector: c.Kind == client.Connector,
			Platform:  workspace.PlatformOf(c.Platform).Name(),
			Resource:  c.Resource,
			Method:    string(c.AuthMethod),
			Redirects: c.Redirects,
			Required:  c.Required,
			Created:   c.CreatedAt,
		})
	}
	adjust(view)
	h.Pages.Show(v.w, v.r, status, view)
	return nil
}

func (h *Handler) listTokens(view *ui.Developers, tokens []pat.Token) {
	named := map[string]pat.Token{}
	for _, t := range tokens {
		named[t.ID.String()] = t
	}
	for _, t := range tokens {
		row := ui.Token{
			ID:          t.ID.String(),
			Name:        t.Name,
			Permissions: t.Permissions,
			Created:     t.Created,
			Expires:     t.Expires,
			LastUsed:    t.LastUsed,
		}
		if t.Active(h.Now()) {
			row.TakesOver = takesOver(t, named, h.Now())
			view.Tokens = append(view.Tokens, row)
			continue
		}
		row.Ended = endedToken(t)
		view.EndedToken = append(view.EndedToken, row)
	}
}

func takesOver(t pat.Token, named map[string]pat.Token, now time.Time) string {
	if t.ReplacesID == nil {
		return ""
	}
	former, listed := named[t.ReplacesID.String()]
	if !listed || !former.Active(now) {
		return ""
	}
	return "The token created on " + former.Created.UTC().Format("2 January 2006") +
		" stops working when this one is first used."
}

func endedToken(t pat.Token) string {
	switch {
	case t.Reason == pat.Replaced:
		return "Replaced on " + t.RevokedAt.UTC().Format("2 January 2006")
	case t.Reason == string(grant.MembershipOver):
		return "Ended with your membership on " + t.RevokedAt.UTC().Format("2 January 2006")
	case t.RevokedAt != nil:
		return "Revoked on " + t.RevokedAt.UTC().Format("2 January 2006")
	}
	return "Expired on " + t.Expires.UTC().Format("2 January 2006")
}

// proof returns how the user must authenticate before a credential is created.
func (h *Handler) proof(v *request) (ui.Proof, error) {
	if v.current.Fresh(h.Now()) {
		return ui.NoProof, nil
	}
	_, hash, _, err := h.Store.UserByEmail(v.r.Context(), v.current.User.Email)
	if err != nil {
		return ui.NoProof, err
	}
	if hash == "" {
		return ui.OtherProof, nil
	}
	return ui.PasswordProof, nil
}

// showRetry shows the page with the form that was refused open and filled in, so that a user who mistyped a password
// loses nothing else.
func (h *Handler) showRetry(v *request, here workspaceScope, id uuid.UUID, status int, note string) error {
	return h.showDevelopers(v, here, status, func(page *ui.Developers) {
		page.Retry = ui.Retry{ID: id.String(), Note: note, ExpireOld: v.form.Get("expire_old") == "yes"}
		page.Problem, page.ProblemAt = "Nothing was created. "+note, ui.ProofField(page.Retry.ID)
	})
}

// prove authenticates the user by password, unless a recent authentication exists. It returns the message for the
// password field, or "".
func (h *Handler) prove(v *request) (status int, note string, err error) {
	proof, err := h.proof(v)
	switch {
	case err != nil:
		return 0, "", err
	case proof == ui.NoProof:
		return http.StatusOK, "", nil
	case proof == ui.OtherProof:
		return http.StatusBadRequest, "Confirm your identity first.", nil
	}
	password := credential.Secret(v.form.Get("password"))
	if password == "" {
		return http.StatusBadRequest, "Enter your password to continue.", nil
	}
	_, result, err := h.verifier.Verify(
		v.r.Context(),
		v.current.User.Email,
		password,
		h.Proxies.ClientAddress(v.r),
		true,
	)
	switch {
	case errors.Is(err, session.ErrBusy):
		web.SetRetryAfter(v.w.Header(), session.BusyFor)
		return http.StatusTooManyRequests, "Too many people are signing in right now. Please try again in a few " +
			"seconds.", nil
	case err != nil:
		return 0, "", err
	case result.Wait > 0:
		web.SetRateLimited(v.w.Header(), result.Wait, result.Limit)
		return http.StatusTooManyRequests, "Too many wrong passwords. Please try again later.", nil
	case !result.OK:
		return http.StatusBadRequest, "The password is incorrect.", nil
	}
	event := v.current.Event(v.r.Context(), audit.SignInProved, "sign_in:"+v.current.SignInID.String())
	event.Detail = map[string]any{"method": session.Password, "address": h.Proxies.ClientAddress(v.r).String()}
	err = h.Sessions.Reauthenticated(v.w, v.r, v.current, result.Proof, event)
	if errors.Is(err, session.ErrProofInvalid) {
		return http.StatusBadRequest, "The password is incorrect.", nil
	}
	if err == nil {
		v.current.AuthenticatedAt = h.Now()
	}
	return http.StatusOK, "", err
}
