package client

import (
	"context"
	"net/http"
	"time"
)

// A Change is a planned change of the workspace: exactly one of its members is not nil (contract, section 5b).
type Change struct {
	RemoveMember        *RemoveMember        `json:"removeMember,omitempty"`
	SetPermissions      *SetPermissions      `json:"setPermissions,omitempty"`
	SetConnectorPolicy  *ConnectorPolicy     `json:"setConnectorPolicy,omitempty"`
	SetLLMIntegration   *SetLLMIntegration   `json:"setLlmIntegration,omitempty"`
	DeleteClient        *DeleteClient        `json:"deleteClient,omitempty"`
	DeleteTrustedIssuer *DeleteTrustedIssuer `json:"deleteTrustedIssuer,omitempty"`
	DisableModule       *DisableModule       `json:"disableModule,omitempty"`
}

// RemoveMember removes a member.
type RemoveMember struct {
	UserID string `json:"userId"`
}

// SetPermissions replaces the permissions of a member.
type SetPermissions struct {
	UserID      string   `json:"userId"`
	Permissions []string `json:"permissions"`
}

// SetLLMIntegration switches LLM integration on or off.
type SetLLMIntegration struct {
	Enabled bool `json:"enabled"`
}

// DeleteClient deletes an OAuth client.
type DeleteClient struct {
	ClientID string `json:"clientId"`
}

// DeleteTrustedIssuer deletes a trusted issuer.
type DeleteTrustedIssuer struct {
	ID string `json:"id"`
}

// DisableModule switches a module off.
type DisableModule struct {
	Module string `json:"module"`
}

// A RehearsedChange is what a change would do. Its lists have identifiers.
type RehearsedChange struct {
	Ends struct { // for good
		Connections []string `json:"connections"`
		Tokens      []string `json:"tokens"`
		Webhooks    []string `json:"webhooks"`
		Invitations []string `json:"invitations"`
	} `json:"ends"`
	Pauses struct { // until what was switched off is on again
		Connections []string `json:"connections"`
		Tokens      []string `json:"tokens"`
	} `json:"pauses"`
	Narrows []struct { // those that stay
		CredentialID string   `json:"credentialId"`
		Loses        []string `json:"loses"` // permissions
	} `json:"narrows"`
	Refused struct { // requests since Since that were served
		Requests    int64 `json:"requests"`
		ByOperation []struct {
			Operation   string `json:"operation"` // an operationId or the name of an MCP tool
			Requests    int64  `json:"requests"`
			Credentials int    `json:"credentials"` // that made them
		} `json:"byOperation"`
	} `json:"refused"`
	Since time.Time `json:"since"` // 30 days
}

// Rehearse says what a change would do, and changes nothing. It fails as the change would fail.
func (a Credentials) Rehearse(ctx context.Context, change Change) (RehearsedChange, error) {
	body := map[string]Change{"change": change}
	return fetch[RehearsedChange](ctx, a.c, a.c.writeJSON(http.MethodPost, a.path("rehearsals", ""), body, nil))
}
