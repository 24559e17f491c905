// Package mcp answers: what can an assistant ask of a workspace, and how?
//
// It is the MCP endpoint, streamable HTTP without sessions (contract, section 7a), with tools that read and change
// nothing. The protocol is the SDK's work, and the SDK decides nothing else:
//
//   - Who may call what is the gate's business, by the same steps as for the REST routes. Every request goes through it,
//     a handshake too, and is refused there by HTTP status, with the challenge that leads to consent.
//   - The calls of a request are read, admitted and answered before the SDK sees it. Its tools hand out the answers of
//     this one request and can reach no store, so a call that was not admitted has no answer, however it is spelled.
//   - Nothing is kept between two requests: any process answers any of them, and no stream is held open.
package mcp

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/standing"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// Path is where the endpoint lives, below the base address; with it, it is the resource's identifier.
const Path = "/mcp"

// Store keeps what the tools read. Its errors are those of the domain, or *apierr.Error.
type Store interface {
	StandingAndPage(
		ctx context.Context,
		q standing.Query,
		query programme.Query,
	) (standing.Standing, programme.Page, error)
	StandingAndNames(ctx context.Context, q standing.Query) (standing.Standing, standing.Names, error)
	Page(ctx context.Context, query programme.Query) (programme.Page, error)
	StandingAndProgramme(
		ctx context.Context,
		q standing.Query,
		workspaceID, id uuid.UUID,
	) (standing.Standing, *programme.Programme, error)
	Programme(ctx context.Context, workspaceID, id uuid.UUID) (programme.Programme, error)
}

// Deps are what an Endpoint is made of.
type Deps struct {
	Gate    *gate.Gate // of gate.MCP
	Store   Store
	Cursors *programme.Cursors
	Origins Origins
}

// An Endpoint makes the handlers of the path.
type Endpoint struct {
	gate     *gate.Gate
	store    Store
	cursors  *programme.Cursors
	origins  Origins
	tools    map[string]tool
	protocol http.Handler // the SDK's
}

// New makes the endpoint.
func New(d Deps) *Endpoint {
	e := &Endpoint{gate: d.Gate, store: d.Store, cursors: d.Cursors, origins: d.Origins}
	e.tools = map[string]tool{}
	for _, t := range []tool{e.whoami(), e.listProgrammes(), e.getProgramme()} {
		e.tools[t.definition.Name] = t
	}
	e.protocol = newProtocol(e.tools)
	return e
}

// Post answers what clients send: one message, or several where the protocol's version has batches.
func (e *Endpoint) Post() http.Handler {
	return e.fromAllowedOrigin(func(w http.ResponseWriter, r *http.Request) {
		e.gate.Guard(gate.Need{}, e.prepare(w)).ServeHTTP(w, r)
	})
}

// NoSession answers GET and DELETE, with which clients open a stream and end a session: there is neither. Only a caller
// with a good credential is told so; anybody else is challenged, as some clients look here first.
func (e *Endpoint) NoSession() http.Handler {
	refuse := gate.ServingAnyQuery(func(w http.ResponseWriter, _ *http.Request, _ gate.Caller) error {
		w.Header().Set("Allow", "OPTIONS, POST")
		return apierr.New(
			apierr.MethodNotAllowed,
			"This server keeps no session and opens no stream. Send each message by POST.",
		)
	})
	return e.fromAllowedOrigin(e.gate.Guard(gate.Need{}, refuse).ServeHTTP)
}
