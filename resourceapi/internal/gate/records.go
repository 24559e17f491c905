package gate

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

// The lists, reads and writes of all modules. A module's endpoint decodes its requests and encodes its records.

// PathID reads the id of the path. A malformed id yields notFound, since it names no record.
func PathID(r *http.Request, notFound error) (uuid.UUID, error) {
	id, err := web.ParseID(r.PathValue("id"))
	if err != nil {
		return uuid.Nil, notFound
	}
	return id, nil
}

// CursorPurpose is the purpose of the Cursors of the lists. The lists of Engage were the first.
const CursorPurpose = "engage cursor"

// A Module is what the routes of one module share.
type Module struct {
	Gate     *Gate
	Cursors  *rest.Cursors
	Refusals rest.Refusals
}

// Records serve the records of type T of a workspace, which are shown as R: a list of them, newest first, a page at a
// time, and each of them alone.
type Records[T, R any] struct {
	Module
	Need   perm.Permission
	Record func(T) R // returns a record in its API form
	// RecordFor is Record for lists whose records show less to some callers. Record is used if it is nil.
	RecordFor func(caller Caller, found T) R
	// Name identifies the list in its cursors. Each list has its own.
	Name string
	// Owner is the error for an unknown record to which the list belongs, and whose id is in the path. If nil, the list
	// belongs to the workspace.
	Owner error
	// Find checks that the workspace has the record of that id. It is nil if Owner is.
	Find func(ctx context.Context, workspaceID, id uuid.UUID) error
	// Filters are the query parameters other than cursor, limit and fields.
	Filters rest.Filters
	// Page passes the records of a page of the workspace's list to take until it returns false. PageOf does it for the
	// list of an owner, and is used instead of Page if Owner is not nil.
	Page   func(ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(T) bool) (rest.End, error)
	PageOf func(ctx context.Context, workspaceID, owner uuid.UUID, r rest.Range, take func(T) bool) (rest.End, error)
	// Position returns the position of a record in the list.
	Position func(T) rest.Position
	// Read reads the record whose id is in the path. NotFound is the error for an id that is no UUID.
	Read     func(ctx context.Context, workspaceID, id uuid.UUID) (T, error)
	NotFound error
	// Check returns an error if the caller may not read the record. It may be nil.
	Check   func(caller Caller, found T) error
	Version func(T) int // for the entity tag of a record; nil if it has none
}

// Itself is the Record of records that are their own API form.
func Itself[T any](record T) T { return record }

// List returns the handler of GET of the list.
func (s Records[T, R]) List() http.Handler {
	return s.Gate.Guard(s.Need, func(r *http.Request, workspaceID uuid.UUID) (Plan, error) {
		owner, notFound := workspaceID, error(nil)
		if s.Owner != nil {
			owner, notFound = PathID(r, s.Owner)
		}
		name := s.Name + " of " + owner.String()
		wanted, err := rest.ReadRange(r.URL.RawQuery, name, s.Cursors, rest.FieldsOf[R](), s.Filters)
		if err != nil {
			return Plan{}, s.Refusals.Of(err)
		}
		return Plan{Serve: func(w http.ResponseWriter, r *http.Request, caller Caller) error {
			if notFound != nil {
				return s.Refusals.Of(notFound)
			}
			return s.Refusals.Of(s.serveList(w, r, caller, owner, wanted))
		}}, nil
	})
}

// recordFor returns how the caller sees the records.
func (s Records[T, R]) recordFor(caller Caller) func(T) R {
	if s.RecordFor == nil {
		return s.Record
	}
	return func(found T) R { return s.RecordFor(caller, found) }
}

func (s Records[T, R]) serveList(
	w http.ResponseWriter, r *http.Request, caller Caller, owner uuid.UUID, wanted rest.Range,
) error {
	if s.Find != nil {
		if err := s.Find(r.Context(), caller.WorkspaceID, owner); err != nil {
			return err
		}
	}
	record := s.recordFor(caller)
	return WritePage(w, r, caller, record, wanted.Fields, func(page *rest.Page[T]) (next string, err error) {
		var end rest.End
		if s.Owner == nil {
			end, err = s.Page(r.Context(), caller.WorkspaceID, wanted, page.Take)
		} else {
			end, err = s.PageOf(r.Context(), caller.WorkspaceID, owner, wanted, page.Take)
		}
		if err != nil || !end.More {
			return "", err
		}
		last := s.Position(page.Last())
		last.Until = end.Until
		return s.Cursors.SealPosition(wanted.List, last), nil
	})
}

// WritePage writes a page of records of type T, which are shown as R with these fields. read adds the records, in a
// turn of the workspace, and returns the cursor of the next page, if any.
func WritePage[T, R any](
	w http.ResponseWriter, r *http.Request, caller Caller, record func(T) R, fields []string,
	read func(page *rest.Page[T]) (next string, err error),
) error {
	page := rest.NewJSONPage(record, fields, ByteReserver(r.Context()))
	next := ""
	err := caller.ReadInTurn(r.Context(), func() (err error) {
		next, err = read(page)
		return err
	})
	if err := cmp.Or(err, page.Err()); err != nil {
		return err
	}
	page.Write(w, r, next)
	return nil
}

// One returns the handler of GET of one record.
func (s Records[T, R]) One() http.Handler {
	return s.Gate.Guard(s.Need, func(r *http.Request, _ uuid.UUID) (Plan, error) {
		return Plan{Serve: func(w http.ResponseWriter, r *http.Request, caller Caller) error {
			return s.Refusals.Of(s.serveOne(w, r, caller))
		}}, rest.UnknownParameters(r.URL.RawQuery)
	})
}

func (s Records[T, R]) serveOne(w http.ResponseWriter, r *http.Request, caller Caller) error {
	id, err := PathID(r, s.NotFound)
	if err != nil {
		return err
	}
	var conditions rest.Conditions
	if s.Version != nil {
		if conditions, err = rest.ReadConditions(r.Header); err != nil {
			return err
		}
	}
	found, err := s.Read(r.Context(), caller.WorkspaceID, id)
	if err == nil && s.Check != nil {
		err = s.Check(caller, found)
	}
	if err != nil {
		return err
	}
	write := func() { web.JSON(w, http.StatusOK, s.recordFor(caller)(found)) }
	if s.Version == nil {
		write()
		return nil
	}
	return conditions.ServeRead(w, s.Version(found), write)
}

// A WriteRequest is an admitted write that a Decoder parses. It keeps the first mistake that is found in it.
type WriteRequest struct {
	*http.Request
	Caller
	Content []byte // the body
	mistake error
}

// Refuse keeps err if it is the first mistake.
func (w *WriteRequest) Refuse(err error) { w.mistake = cmp.Or(w.mistake, err) }

// Refused reports whether the request has a mistake.
func (w *WriteRequest) Refused() bool { return w.mistake != nil }

// Object returns the body as a JSON object of one of the types. It is empty if the body is refused.
func (w *WriteRequest) Object(types ...string) rest.Object {
	object, err := rest.ParseBody(w.Header, w.Content, types...)
	w.Refuse(err)
	return object
}

// ID returns the id of the path, or refuses the request with notFound.
func (w *WriteRequest) ID(notFound error) uuid.UUID {
	id, err := PathID(w.Request, notFound)
	w.Refuse(err)
	return id
}

// Conditions returns the preconditions of the request.
func (w *WriteRequest) Conditions() rest.Conditions {
	conditions, err := rest.ReadConditions(w.Header)
	w.Refuse(err)
	return conditions
}

// A Decoder parses a request and returns its effect, which runs unless the request was refused. It does no I/O.
type Decoder[W any] func(r *WriteRequest) rest.Effect[W]

// A Body reads the body of an admitted request. release is called when the write has ended.
type Body func(w http.ResponseWriter, r *http.Request, caller Caller) (content []byte, release func(), err error)

// UpTo returns the Body that reads at most limit bytes.
func UpTo(limit int64) Body {
	return func(w http.ResponseWriter, r *http.Request, _ Caller) ([]byte, func(), error) {
		content, err := rest.ReadBody(w, r, limit)
		return content, func() {}, err
	}
}

// Deletes returns the Decoder of a DELETE of the record whose id is in the path: 204.
func Deletes[W any](
	notFound error, remove func(writer W, ctx context.Context, workspaceID, id, by uuid.UUID) error,
) Decoder[W] {
	return func(r *WriteRequest) rest.Effect[W] {
		id := r.ID(notFound)
		return func(ctx context.Context, writer W) (rest.Answer, error) {
			return rest.Answer{Status: http.StatusNoContent}, remove(writer, ctx, r.WorkspaceID, id, r.User)
		}
	}
}

// Writes serves the writes of one module. Every write takes the same steps: admission, body, Idempotency-Key, decoding,
// transaction, answer.
type Writes[W any] struct {
	Module
	Need perm.Permission
	// Once runs effect in one transaction, or returns the answer already stored under key.
	Once func(ctx context.Context, key rest.Key, effect rest.Effect[W]) (rest.Answer, error)
}

// Handler handles the writes that decode parses.
func (s Writes[W]) Handler(body Body, decode Decoder[W]) http.Handler {
	return s.Gate.Guard(s.Need, ServingAnyQuery(func(w http.ResponseWriter, r *http.Request, caller Caller) error {
		content, release, err := body(w, r, caller)
		if err != nil {
			return err
		}
		defer release()
		answer, err := s.run(&WriteRequest{Request: r, Caller: caller, Content: content}, decode)
		if err != nil {
			return s.Refusals.Of(err)
		}
		answer.Serve(w)
		return nil
	}))
}

// run decodes the request and runs its effect. An invalid request may repeat an answered one, so its error is returned
// only after the key was looked up.
func (s Writes[W]) run(r *WriteRequest, decode Decoder[W]) (rest.Answer, error) {
	scope := rest.KeyScope{WorkspaceID: r.WorkspaceID, User: r.User, Route: rest.RouteOf(r.Request)}
	key, err := rest.ReadKey(r.Header, scope, r.Content)
	if err != nil {
		return rest.Answer{}, err
	}
	key.By = rest.Caller{Credential: r.Credential, Held: r.Permissions}
	effect := decode(r)
	if refused, ok := errors.AsType[*apierr.Error](r.mistake); ok && refused.Kind == apierr.Forbidden {
		return rest.Answer{}, r.mistake // what the caller may not do now is not repeated either
	}
	if mistake := cmp.Or(rest.UnknownParameters(r.URL.RawQuery), r.mistake); mistake != nil {
		if !key.Given() {
			return rest.Answer{}, mistake
		}
		effect = func(context.Context, W) (rest.Answer, error) { return rest.Answer{}, mistake }
	}
	return s.Once(r.Context(), key, effect)
}

type me struct {
	User struct {
		ID    uuid.UUID `json:"id"`
		Name  string    `json:"name"`
		Email string    `json:"email"`
	} `json:"user"`
	Credential struct {
		Type      string    `json:"type"`
		Name      string    `json:"name"`
		ExpiresAt rest.Time `json:"expiresAt"`
	} `json:"credential"`
	Workspaces []meWorkspace `json:"workspaces"`
	// Limits are those of every credential (contract, section 6).
	Limits struct {
		RequestsInFlight int `json:"requestsInFlight"`
		SearchesInFlight int `json:"searchesInFlight"`
		PageSize         int `json:"pageSize"`
		PageBytes        int `json:"pageBytes"`
	} `json:"limits"`
}

type meWorkspace struct {
	ID          uuid.UUID `json:"id"`
	Name        string    `json:"name"`
	Permissions []string  `json:"permissions"`
}

// Me returns the handler of GET /v1/me by path and method: who a credential belongs to, where it works and what it may
// do there (contract, section 6a). It acts in no workspace, so it needs a valid credential and nothing else.
func (g *Gate) Me() map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{"/v1/me": {"GET": http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if err := g.serveMe(w, r); err != nil {
				g.Refuse(w, r, err)
			}
		},
	)}}
}

func (g *Gate) serveMe(w http.ResponseWriter, r *http.Request) error {
	var profile standing.Profile
	read := func(ctx context.Context, q standing.Query) (s standing.Standing, err error) {
		s, profile, err = g.Standings.StandingAndProfile(ctx, q)
		return s, err
	}
	return g.serveCredential(w, r, Plan{ReadStanding: read}, func(held presented, s standing.Standing) error {
		if err := rest.UnknownParameters(r.URL.RawQuery); err != nil {
			return err
		}
		web.JSON(w, http.StatusOK, held.describe(s, profile))
		return nil
	})
}

// serveCredential serves a request that acts in no workspace, if its credential is valid.
func (g *Gate) serveCredential(
	w http.ResponseWriter, r *http.Request, plan Plan, serve func(presented, standing.Standing) error,
) (err error) {
	held, err := g.identify(r)
	if err != nil {
		return err
	}
	turn, err := g.Bounds.requests.Enter(r.Context(), w.Header(), held.key())
	if err != nil {
		return err
	}
	defer func() { endTurn(turn, err) }()
	s, err := g.use(r.Context(), held, uuid.Nil, "", plan)
	if err != nil {
		return err
	}
	return serve(held, s)
}

// describe returns what the credential may do now.
func (p presented) describe(s standing.Standing, profile standing.Profile) me {
	d := me{Workspaces: []meWorkspace{}}
	d.User.ID, d.User.Name, d.User.Email = s.UserID, profile.User, profile.Email
	d.Credential.Type, d.Credential.Name = "access_token", profile.Credential
	d.Credential.ExpiresAt = rest.Time(s.EndsAt)
	d.Limits.RequestsInFlight, d.Limits.SearchesInFlight = MaxInFlight, MaxSearches
	d.Limits.PageSize, d.Limits.PageBytes = rest.MaxLimit, rest.MaxPageBytes
	if s.Kind == standing.PersonalAccessToken {
		d.Credential.Type = standing.PersonalAccessToken
	}
	if p.Claims != nil && p.Claims.Expires.Before(s.EndsAt) { // the access token ends, not its grant
		d.Credential.ExpiresAt = rest.Time(p.Claims.Expires)
	}
	if s.Usable() {
		permissions := p.granted(s).Intersect(s.MemberPermissions).Strings()
		d.Workspaces = append(d.Workspaces, meWorkspace{s.CredentialWorkspace, profile.Workspace, permissions})
	}
	return d
}
