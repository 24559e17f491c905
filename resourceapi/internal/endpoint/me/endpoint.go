// Package me serves GET /v1/me: who a credential belongs to, where it works and what it may do there (contract,
// section 6a).
package me

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

// Path is the path, below the base address.
const Path = "/v1/me"

// Store reads profiles.
type Store interface {
	// StandingAndProfile reads the standing of a credential and its profile in one round trip.
	StandingAndProfile(ctx context.Context, q standing.Query) (standing.Standing, standing.Profile, error)
}

type description struct {
	User       user        `json:"user"`
	Credential held        `json:"credential"`
	Workspaces []workspace `json:"workspaces"`
	Limits     limits      `json:"limits"`
}

type user struct {
	ID    uuid.UUID `json:"id"`
	Name  string    `json:"name"`
	Email string    `json:"email"`
}

type held struct {
	Type      string    `json:"type"`
	Name      string    `json:"name"`
	ExpiresAt rest.Time `json:"expiresAt"`
}

type workspace struct {
	ID          uuid.UUID `json:"id"`
	Name        string    `json:"name"`
	Permissions []string  `json:"permissions"`
}

// limits are those of every credential (contract, section 6).
type limits struct {
	RequestsInFlight int `json:"requestsInFlight"`
	SearchesInFlight int `json:"searchesInFlight"`
	PageSize         int `json:"pageSize"`
	PageBytes        int `json:"pageBytes"`
}

// accessToken is the type of a credential that is not a personal access token.
const accessToken = "access_token"

// Routes returns the handler by path and method.
func Routes(guard *gate.Gate, store Store) map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{Path: {"GET": read(guard, store)}}
}

func read(guard *gate.Gate, store Store) http.Handler {
	return guard.GuardCredential(func(r *http.Request) (gate.CredentialPlan, error) {
		var profile standing.Profile
		plan := gate.CredentialPlan{
			ReadStanding: func(ctx context.Context, q standing.Query) (s standing.Standing, err error) {
				s, profile, err = store.StandingAndProfile(ctx, q)
				return s, err
			},
			Serve: func(w http.ResponseWriter, _ *http.Request, c gate.Credential) error {
				web.JSON(w, http.StatusOK, describe(c, profile))
				return nil
			},
		}
		return plan, rest.UnknownParameters(r.URL.RawQuery)
	})
}

func describe(c gate.Credential, p standing.Profile) description {
	d := description{
		User:       user{c.User, p.User, p.Email},
		Credential: held{Type: accessToken, Name: p.Credential, ExpiresAt: rest.Time(c.ExpiresAt)},
		Workspaces: []workspace{},
		Limits: limits{
			RequestsInFlight: gate.MaxInFlight,
			SearchesInFlight: gate.MaxSearches,
			PageSize:         rest.MaxLimit,
			PageBytes:        rest.MaxPageBytes,
		},
	}
	if c.Kind == standing.PersonalAccessToken {
		d.Credential.Type = standing.PersonalAccessToken
	}
	if c.Usable {
		d.Workspaces = append(d.Workspaces, workspace{c.WorkspaceID, p.Workspace, c.Permissions.Strings()})
	}
	return d
}
