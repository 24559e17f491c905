// Package connectors serves the settings page with the connector policy, the connections and the connection log of one
// workspace.
//
//	GET  /settings/connectors?tenant=&q=&before=&page=   a page of the connections that q finds, and one of connectors
//	POST /settings/connectors/policy
//	POST /settings/connectors/disconnect
//	POST /settings/connectors/llm
//	GET  /settings/connectors/log?tenant=&before=&client=   the log of all connectors or of one, latest first
//	GET  /settings/connectors/log.jsonl?tenant=              the whole log, one JSON object per line
//	GET  /settings/connectors/log.csv?tenant=                the whole log as CSV
//
// These parameters search the log: request (id), person, application, client, since and until (days in UTC).
package connectors

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/policy"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/spelling"
)

// Section is the page's link in the navigation.
var Section = ui.Section{Name: "connectors", Title: "Connectors", Needs: perm.AccountAPIAccess}

// Policies stores connector policies. The current policy is read with the membership (workspace.Workspace).
type Policies interface {
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
	Connectors(ctx context.Context, workspaceID uuid.UUID, offset, limit int) ([]connectionlog.Connector, error)
	SearchConnections(
		ctx context.Context,
		workspaceID uuid.UUID,
		search audit.Search,
		from audit.Cursor,
		limit int,
	) ([]connectionlog.Found, error)
}

// Connections reads and ends the connections of a workspace, and switches its LLM integration.
type Connections interface {
	WorkspaceConnections(
		ctx context.Context,
		workspaceID uuid.UUID,
		page consent.ConnectionPage,
	) ([]consent.Connection, error)
	LiveConnectors(ctx context.Context, workspaceID uuid.UUID) (int, error)
	EndConnection(
		ctx context.Context,
		workspaceID, id uuid.UUID,
		reason grant.Reason,
		event audit.Event,
	) ([]grant.Grant, error)
	SetFeature(ctx context.Context, workspaceID uuid.UUID, feature string, on bool, event audit.Event) error
}

// A Store is what the page reads and changes.
type Store interface {
	session.Auditor
	Policies
	Connections
}

// Grants propagates revocations; grant.Service implements it.
type Grants interface {
	PropagateRevocation(ctx context.Context, id uuid.UUID, ends time.Time, reason grant.Reason)
}

// A Handler serves the page. It is safe for concurrent use.
type Handler struct {
	*settings.Settings
	auditor     session.Auditor
	policies    Policies
	connections Connections
	grants      Grants
}

// New returns a Handler.
func New(s *settings.Settings, store Store, grants Grants) *Handler {
	return &Handler{
		Settings:    s,
		auditor:     store,
		policies:    store,
		connections: store,
		grants:      grants,
	}
}

// Routes returns the routes of the page and its form.
func (h *Handler) Routes() settings.Routes {
	return settings.Routes{
		Section.Path():                 {"GET": h.page()},
		Section.Path() + "/policy":     {"POST": h.setPolicy()},
		Section.Path() + "/disconnect": {"POST": h.disconnect()},
		Section.Path() + "/llm":        {"POST": h.setLLM()},
		logSection.Path():              {"GET": h.showLog()},
		logSection.Path() + ".jsonl":   {"GET": h.exportLog(settings.JSONLines)},
		logSection.Path() + ".csv":     {"GET": h.exportLog(settings.CSV)},
	}
}

// page serves GET /settings/connectors.
func (h *Handler) page() http.Handler {
	return h.Page(func(v *settings.Request) error {
		here, err := h.At(v, v.R.URL.Query().Get("tenant"), Section)
		if err != nil {
			return err
		}
		return h.show(v, here, http.StatusOK, func(*view) {})
	})
}

// show shows the current page, changed by adjust.
func (h *Handler) show(v *settings.Request, here settings.Scope, status int, adjust func(*view)) error {
	frame, err := h.FrameIn(v, here, Section)
	if err != nil {
		return err
	}
	connectors, pages, err := h.connectorPage(v, here)
	if err != nil {
		return err
	}
	connections, err := h.connectionPage(v, here)
	if err != nil {
		return err
	}
	view := &view{
		Connections: connections,
		Connectors:  connectors,
		Pages:       pages,
		Frame:       frame,
		Key:         h.NewKey(v),
		Workspaces:  here.Workspaces(),
		Workspace:   here.View(),
		LLM: llmForm{
			On:      here.Workspace.LLMIntegration,
			Changes: here.Permissions.Has(perm.AccountWriteMembers),
		},
		Policy:    policyView(here.Workspace.Connectors),
		PolicyNow: policyView(here.Workspace.Connectors).summary(),
		Grantable: perm.ForConnectors(),
	}
	if !view.LLM.On && !view.LLM.Changes {
		if view.LLM.Ask, err = h.Ask(v, here.Membership, nil, "", here.Path(Section)); err != nil {
			return err
		}
	}
	adjust(view)
	h.Pages.Show(v.W, v.R, status, view)
	return nil
}

func policyView(p workspace.ConnectorPolicy) policyForm {
	names := make([]string, len(p.Platforms))
	for i, platform := range p.Platforms {
		names[i] = string(platform)
	}
	return typedPolicy(
		policy.Request{Platforms: names, Permissions: p.Permissions.Strings()},
		strconv.Itoa(p.Days),
		p.Digest(),
	)
}

var platformSentences = map[workspace.Platform]string{
	workspace.Claude:  "Claude on the web, desktop and mobile, and Claude Code.",
	workspace.ChatGPT: "ChatGPT connectors.",
	workspace.Other:   "All other assistants and editors that this deployment allows.",
}

func typedPolicy(wish policy.Request, days, seen string) policyForm {
	form := policyForm{
		Chosen:  perm.FromStrings(wish.Permissions),
		Days:    days,
		Seen:    seen,
		MaxDays: workspace.MaxDays,
	}
	for _, platform := range workspace.Platforms() {
		form.Platforms = append(form.Platforms, platformChoice{
			ID:       string(platform),
			Name:     platform.Name(),
			Sentence: platformSentences[platform],
			Chosen:   slices.Contains(wish.Platforms, string(platform)),
		})
	}
	return form
}

// policyProblem returns the error of a field. The form uses the field names of policy.Refusal, also as element ids.
func policyProblem(r *policy.Refusal) ui.Problem {
	label := map[string]string{
		policy.FieldPlatforms:   "Allowed platforms",
		policy.FieldPermissions: "Allowed permissions",
		policy.FieldDays:        "Days until a connection expires",
	}[r.Field]
	return ui.ProblemAt(r.Field, r.Field, label, r.Message)
}

// setPolicy serves POST /settings/connectors/policy: platforms, permissions, days. If the policy affects
// existing connections, the page first shows which, and the form must be sent again with confirm. Both apply only to
// the policy that the page showed: if it was changed since, nothing is saved.
func (h *Handler) setPolicy() http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		here, err := h.At(v, v.Form.Get("tenant"), Section)
		if err != nil {
			return err
		}
		days, seen := spelling.Digits(spelling.Pasted(v.Form.Get("days"))), v.Form.Get("seen")
		wish := policy.Request{Platforms: v.Form["platforms"], Permissions: v.Form["permissions"]}
		wish.Days, _ = strconv.Atoi(days) // text that is not a number becomes 0, which is not between 1 and 30
		wanted, err := wish.Accept()
		if refused, ok := errors.AsType[*policy.Refusal](err); ok {
			return h.show(v, here, http.StatusBadRequest, func(page *view) {
				page.Policy = typedPolicy(wish, days, seen)
				page.Policy.Open = true
				page.Refuse("The policy was not saved.", policyProblem(refused))
			})
		}
		if err != nil {
			return err
		}
		if now := here.Workspace.Connectors; now.Digest() != seen && !now.Equal(wanted) {
			return h.overtaken(v, here)
		}
		if v.Form.Get("confirm") != "yes" {
			effect, err := h.policies.ConnectorPolicyEffect(v.R.Context(), here.Workspace.ID, wanted)
			if err != nil {
				return err
			}
			if !effect.None() {
				return h.show(v, here, http.StatusOK, func(page *view) {
					page.Policy = typedPolicy(wish, days, seen)
					page.Policy.Open = true
					page.Warning = &policyWarning{
						Effects: settings.EffectWords(
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
			if here, err = h.At(v, here.Workspace.ID.String(), Section); err == nil {
				err = h.overtaken(v, here)
			}
		}
		return err
	})
}

// overtaken shows the current policy to a user whose page showed an older one.
func (h *Handler) overtaken(v *settings.Request, here settings.Scope) error {
	return h.show(v, here, http.StatusConflict, func(page *view) {
		page.Problem = "The policy was changed after you opened this page. Your changes were not saved."
	})
}

func (h *Handler) savePolicy(
	v *settings.Request,
	here settings.Scope,
	seen string,
	wanted workspace.ConnectorPolicy,
) error {
	change, err := h.policies.ReplaceConnectorPolicy(v.R.Context(), here.Workspace.ID, seen, wanted,
		v.EventIn(here, audit.ConnectorPolicyChanged, "tenant:"+here.Workspace.ID.String(), nil))
	if err != nil {
		return err
	}
	for _, g := range change.EndedGrants {
		h.grants.PropagateRevocation(v.R.Context(), g.ID, g.Ends, grant.ByPolicy)
	}
	notice := "The policy of " + here.Workspace.Name + " was saved."
	if change.Before.Equal(change.After) {
		notice = "The policy of " + here.Workspace.Name + " was not changed."
	}
	effects := settings.EffectWords(change.Effect, "ended", "lost permissions", "got an earlier expiry date")
	for _, words := range effects {
		notice += " " + words
	}
	return h.Done(v, here.Path(Section), notice)
}
