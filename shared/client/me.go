package client

import (
	"context"
	"time"
)

// A Me describes the credential of a client: its user, the workspaces in which it works, and its limits.
type Me struct {
	User struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		Email string `json:"email"`
	} `json:"user"`
	Credential struct {
		Type      string    `json:"type"` // "personal_access_token" or "access_token"
		Name      string    `json:"name"`
		ExpiresAt time.Time `json:"expiresAt"`
	} `json:"credential"`
	Workspaces []struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Permissions []string `json:"permissions"`
	} `json:"workspaces"`
	Limits struct {
		RequestsInFlight int `json:"requestsInFlight"`
		SearchesInFlight int `json:"searchesInFlight"`
		PageSize         int `json:"pageSize"`
		PageBytes        int `json:"pageBytes"`
	} `json:"limits"`
}

// Me returns what the credential of the client may do, and where. It needs no permission.
func (c *Client) Me(ctx context.Context) (Me, error) {
	var out Me
	_, err := c.OAuthClients.c.do(ctx, c.OAuthClients.c.get("/v1/me", nil), &out)
	return out, err
}
