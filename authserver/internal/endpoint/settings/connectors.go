package settings

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/policy"
	"github.com/almonerhq/almoner/shared/perm"
)

const connectorsPath = "/settings/connectors"

// ConnectorPolicies stores connector policies. The current policy is read with the membership (workspace.Workspace).
type ConnectorPolicies interface {
	ConnectorPolicyEffect(
		ctx context.Context,
		workspaceID uuid.UUID,
		p workspace.ConnectorPolicy,
	) (policy.Effect, error)
	ReplaceConnectorPolicy(
		ctx context.Context,
		workspaceID uuid.UUID,
		seen string,
		p workspace.ConnectorPolicy,
		event audit.Event,
	) (policy.Change, error)
	ConnectionAttempts(
		ctx context.Context,
		workspaceID uuid.UUID,
		only *uuid.UUID,
		each int,
	) ([]connectionlog.Connector, error)
}

// Connectors serves GET /settings/connectors.
func (h *Handler) Connectors() http.Handler {
	return h.page(func(v *request) error {
		here, err := h.at(v, v.r.URL.Query().Get("tenant"), connectorsPath)
		if err != nil {
			return err
		}
		return h.showConnectors(v, here, http.StatusOK, func(*ui.Connectors) {})
	})
}

// showConnectors shows the current page, changed by adjust.
func (h *Handler) showConnectors(v *request, here workspaceScope, status int, adjust func(*ui.Connectors)) error {
	frame, err := h.frameAt(v, here, "connectors", "Connectors")
	if err != nil {
		return err
	}
	only, shown := v.onlyConnector(), attemptsShown
	if only != nil {
		shown = attemptsOfOne
	}
	log, err := h.Store.ConnectionAttempts(v.r.Context(), here.Workspace.ID, only, shown+1)
	if err != nil {
		return err
	}
	view := &ui.Connectors{
		Only:       only != nil,
		Log:        logView(log, shown, here),
		Frame:      frame,
		Key:        h.newKey(v.current),
		Workspaces: workspaces(here.all, &here.Membership),
		Workspace:  workspaceView(here.Membership),
		Off:        !here.Workspace.LLMIntegration,
		Policy:     policyView(here.Workspace.Connectors),
		Grantable:  perm.ForConnectors(),
	}
	adjust(view)
	h.Pages.Show(v.w, v.r, status, view)
	return nil
}

func policyView(p workspace.ConnectorPolicy) ui.PolicyForm {
	names := make([]string, len(p.Platforms))
	for i, platform := range p.Platforms {
		names[i] = string(platform)
	}
	return typedPolicy(
		policy.Request{Platforms: names, Permissions: p.Permissions.Strings()},
		strconv.Itoa(p.Days),
		p.Digest(),
		nil,
	)
}

var platformSentences = map[workspace.Platform]string{
	workspace.Claude:  "Claude on the web, desktop and mobile, and Claude Code.",
	workspace.ChatGPT: "ChatGPT connectors.",
	workspace.Other:   "All other assistants and editors that this deployment allows.",
}

func typedPolicy(wish policy.Request, days, seen string, notes map[string]string) ui.PolicyForm {
	form := ui.PolicyForm{
		Chosen:  perm.FromStrings(wish.Permissions),
		Days:    days,
		Seen:    seen,
		MaxDays: workspace.MaxDays,
		Notes:   notes,
	}
	for _, platform := range workspace.Platforms() {
		form.Platforms = append(form.Platforms, ui.PlatformChoice{
			ID:       string(platform),
			Name:     platform.Name(),
			Sentence: platformSentences[platform],
			Chosen:   slices.Contains(wish.Platforms, string(platform)),
		})
	}
	return form
}

// SetConnectorPolicy serves POST /settings/connectors/policy: platforms, permissions, days. If the policy affects
// existing connections, the page first shows which, and the form must be sent again with confirm. Both apply only to
// the policy that the page showed: if it was changed since, nothing is saved.
func (h *Handler) SetConnectorPolicy() http.Handler {
	return h.form(connectorsPath, func(v *request) error {
		here, err := h.at(v, v.form.Get("tenant"), connectorsPath)
		if err != nil {
			return err
		}
		days, seen := strings.TrimSpace(v.form.Get("days")), v.form.Get("seen")
		wish := policy.Request{Platforms: v.form["platforms"], Permissions: v.form["permissions"]}
		wish.Days, _ = strconv.Atoi(days) // text that is not a number becomes 0, which is not between 1 and 30
		wanted, err := wish.Accept()
		if refused, ok := errors.AsType[*policy.Refusal](err); ok {
			return h.showConnectors(v, here, http.StatusBadRequest, func(page *ui.Connectors) {
				page.Policy = typedPolicy(wish, days, seen, map[string]string{refused.Field: refused.Message})
				// the page uses the same field names
				page.Problem, page.ProblemAt = "The policy was not saved. "+refused.Message, refused.Field
			})
		}
		if err != nil {
			return err
		}
		if now := here.Workspace.Connectors; now.Digest() != seen && !now.Equal(wanted) {
			return h.overtaken(v, here)
		}
		if v.form.Get("confirm") != "yes" {
			effect, err := h.Store.ConnectorPolicyEffect(v.r.Context(), here.Workspace.ID, wanted)
			if err != nil {
				return err
			}
			if !effect.None() {
				return h.showConnectors(v, here, http.StatusOK, func(page *ui.Connectors) {
					page.Policy = typedPolicy(wish, days, seen, nil)
					page.Warning = &ui.PolicyWarning{
						Effects: effectWords(
							effect,
							"will end immediately",
							"will lose permissions",
							"will expire sooner",
						),
						Policy: page.Policy,
					}
				})
			}
		}
		err = h.savePolicy(v, here, seen, wanted)
		if errors.Is(err, policy.ErrChanged) {
			if here, err = h.at(v, here.Workspace.ID.String(), connectorsPath); err == nil {
				err = h.overtaken(v, here)
			}
		}
		return err
	})
}

// overtaken shows the current policy to a user whose page showed an older one.
func (h *Handler) overtaken(v *request, here workspaceScope) error {
	return h.showConnectors(v, here, http.StatusConflict, func(page *ui.Connectors) {
		page.Problem = "The policy was changed after you opened this page. Your changes were not saved."
	})
}

func (h *Handler) savePolicy(v *request, here workspaceScope, seen string, wanted workspace.ConnectorPolicy) error {
	change, err := h.Store.ReplaceConnectorPolicy(v.r.Context(), here.Workspace.ID, seen, wanted,
		v.eventHere(here, audit.ConnectorPolicyChanged, "tenant:"+here.Workspace.ID.String(), nil))
	if err != nil {
		return err
	}
	for _, g := range change.EndedGrants {
		h.Grants.PropagateRevocation(v.r.Context(), g.ID, g.Ends, grant.ByPolicy)
	}
	notice := "The policy of " + here.Workspace.Name + " was saved."
	if change.Before.Equal(change.After) {
		notice = "The policy of " + here.Workspace.Name + " was not changed."
	}
	for _, words := range effectWords(change.Effect, "ended", "lost permissions", "got an earlier expiry date") {
		notice += " " + words
	}
	return h.done(v, here.path(connectorsPath), notice)
}

// effectWords describes what a policy does to connections, one sentence for each effect.
func effectWords(e policy.Effect, end, lose, sooner string) []string {
	var out []string
	for _, part := range []struct {
		n    int
		does string
	}{{e.End, end}, {e.Lose, lose}, {e.Sooner, sooner}} {
		switch {
		case part.n == 1:
			out = append(out, "1 connection "+part.does+".")
		case part.n > 1:
			out = append(out, fmt.Sprintf("%d connections %s.", part.n, part.does))
		}
	}
	return out
}
