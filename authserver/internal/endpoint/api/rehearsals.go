package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

// A changeBody is the JSON of a planned change. Exactly one of the members is not nil.
type changeBody struct {
	RemoveMember *struct {
		UserID string `json:"userId"`
	} `json:"removeMember"`
	SetPermissions *struct {
		UserID      string   `json:"userId"`
		Permissions []string `json:"permissions"`
	} `json:"setPermissions"`
	SetConnectorPolicy *policyBody `json:"setConnectorPolicy"`
	SetLLMIntegration  *struct {
		Enabled *bool `json:"enabled"`
	} `json:"setLlmIntegration"`
	DeleteClient *struct {
		ClientID string `json:"clientId"`
	} `json:"deleteClient"`
	DeleteTrustedIssuer *struct {
		ID string `json:"id"`
	} `json:"deleteTrustedIssuer"`
	DisableModule *struct {
		Module string `json:"module"`
	} `json:"disableModule"`
}

// A changeKind is one of the changes of a changeBody.
type changeKind struct {
	given bool
	needs perm.Permission
	read  func() (rehearsal.Change, error)
}

// kinds returns the changes. Their read may only be called if they are given.
func (b changeBody) kinds() []changeKind {
	manages := perm.AccountWriteMembers
	return []changeKind{
		{b.RemoveMember != nil, manages, func() (rehearsal.Change, error) {
			return ofID("userId", b.RemoveMember.UserID, rehearsal.RemoveMember)
		}},
		{b.SetPermissions != nil, manages, func() (rehearsal.Change, error) {
			permissions, err := membership.ParsePermissions(b.SetPermissions.Permissions)
			if err != nil {
				return rehearsal.Change{}, err
			}
			return ofID("userId", b.SetPermissions.UserID, func(user uuid.UUID) rehearsal.Change {
				return rehearsal.SetPermissions(user, permissions, nil)
			})
		}},
		{b.SetConnectorPolicy != nil, manages, func() (rehearsal.Change, error) {
			policy, err := b.SetConnectorPolicy.accept()
			return rehearsal.SetPolicy(policy, perm.NewSet(manages)), err
		}},
		{b.SetLLMIntegration != nil, manages, func() (rehearsal.Change, error) {
			enabled := b.SetLLMIntegration.Enabled
			if enabled == nil {
				return rehearsal.Change{}, apierr.New(apierr.Invalid, "enabled: Must be true or false.")
			}
			return rehearsal.SwitchAssistants(*enabled), nil
		}},
		{b.DeleteClient != nil, perm.AccountAPIAccess, func() (rehearsal.Change, error) {
			return ofID("clientId", b.DeleteClient.ClientID, rehearsal.DeleteClient)
		}},
		{b.DeleteTrustedIssuer != nil, manages, func() (rehearsal.Change, error) {
			return ofID("id", b.DeleteTrustedIssuer.ID, rehearsal.DeleteTrustedIssuer)
		}},
		{b.DisableModule != nil, manages, func() (rehearsal.Change, error) {
			if modules := perm.Modules(); !slices.Contains(modules, b.DisableModule.Module) {
				return rehearsal.Change{}, apierr.New(apierr.Invalid,
					"module: Must be "+strings.Join(modules, " or ")+".")
			}
			return rehearsal.DisableModule(b.DisableModule.Module), nil
		}},
	}
}

// ofID returns the change of what has this identifier.
func ofID(field, text string, change func(uuid.UUID) rehearsal.Change) (rehearsal.Change, error) {
	id, err := web.ParseID(text)
	if err != nil {
		return rehearsal.Change{}, apierr.New(apierr.Invalid, field+": Must be a UUID.")
	}
	return change(id), nil
}

// accept returns the policy, or a *consent.PolicyRefusal.
func (b policyBody) accept() (workspace.ConnectorPolicy, error) {
	wish := consent.PolicyRequest{Permissions: b.Permissions, Days: b.Days}
	for _, platform := range b.Platforms {
		wish.Platforms = append(wish.Platforms, string(platform))
	}
	return wish.Accept()
}

// readChange reads the change of the request, which the caller may make.
func (r *request) readChange() (rehearsal.Change, error) {
	var body struct {
		Change changeBody `json:"change"`
	}
	if err := rest.ReadJSON(r.w, r.http, &body); err != nil {
		return rehearsal.Change{}, err
	}
	kinds := slices.DeleteFunc(body.Change.kinds(), func(k changeKind) bool { return !k.given })
	if len(kinds) != 1 {
		return rehearsal.Change{}, apierr.New(apierr.Invalid, "change: Must have exactly one of removeMember, "+
			"setPermissions, setConnectorPolicy, setLlmIntegration, deleteClient, deleteTrustedIssuer and "+
			"disableModule.")
	}
	if !r.by.Permissions.Has(kinds[0].needs) {
		return rehearsal.Change{}, lacking(kinds[0].needs)
	}
	return kinds[0].read()
}

// An outcomeBody is the JSON of what a change would do.
type outcomeBody struct {
	Ends struct {
		credentialIDs
		Webhooks    []uuid.UUID `json:"webhooks"`
		Invitations []uuid.UUID `json:"invitations"`
	} `json:"ends"`
	Pauses  credentialIDs  `json:"pauses"`
	Narrows []narrowedBody `json:"narrows"`
	Refused struct {
		Requests    int64           `json:"requests"`
		ByOperation []operationBody `json:"byOperation"`
	} `json:"refused"`
	Since rest.Time `json:"since"`
}

type credentialIDs struct {
	Connections []uuid.UUID `json:"connections"`
	Tokens      []uuid.UUID `json:"tokens"`
}

type narrowedBody struct {
	CredentialID uuid.UUID `json:"credentialId"`
	Loses        []string  `json:"loses"`
}

type operationBody struct {
	Operation   string `json:"operation"`
	Requests    int64  `json:"requests"`
	Credentials int    `json:"credentials"`
}

func showOutcome(o rehearsal.Outcome) (b outcomeBody) {
	with := func(fate rehearsal.Fate) credentialIDs {
		return credentialIDs{Connections: o.With(fate, false), Tokens: o.With(fate, true)}
	}
	b.Ends.credentialIDs, b.Pauses = with(rehearsal.Ends), with(rehearsal.Pauses)
	b.Ends.Webhooks, b.Ends.Invitations = o.Webhooks, o.Invitations
	b.Narrows, b.Refused.ByOperation = []narrowedBody{}, []operationBody{}
	for _, a := range o.Affected {
		if a.Fate == rehearsal.Narrows {
			b.Narrows = append(b.Narrows, narrowedBody{a.ID, a.Loses.Strings()})
		}
	}
	for _, one := range o.Operations {
		b.Refused.ByOperation = append(b.Refused.ByOperation, operationBody{one.Name, one.Requests, one.Credentials})
	}
	b.Refused.Requests, b.Since = o.Requests, rest.Time(o.Since)
	return b
}

// rehearse says what a change would do (contract, section 5b). It changes nothing, so it stores no answer.
func (r *request) rehearse() error {
	change, err := r.readChange()
	if err != nil {
		return err
	}
	outcome, err := r.Rehearsals.Run(r.http.Context(), r.by, change)
	if err != nil {
		return err
	}
	web.JSON(r.w, http.StatusOK, showOutcome(outcome))
	return nil
}
