// Package audit defines audit events and the authorization that a write requires.
//
// Events are append-only (the service's role may insert and read, never change) and contain no secret.
package audit

import (
	"time"

	"github.com/google/uuid"
)

// An Event is one audited action.
type Event struct {
	At            time.Time // set by the store
	WorkspaceID   *uuid.UUID
	UserID        *uuid.UUID // the user that it concerns
	Actor         string     // user:<id>, client:<id>, admin, system
	Action        Action
	Subject       string // grant:<id>, client:<id>, …
	Detail        map[string]any
	RequestID     string
	Authorization *Authorization // what allowed a request that writes; not stored
}
