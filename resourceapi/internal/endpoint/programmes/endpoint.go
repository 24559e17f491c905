// Package programmes serves the endpoints of the Programmes module.
//
// It decodes requests, calls the domain and encodes the results; package gate decides who may call, and package
// programme what is valid. All paths are under /v1/programmes/programmes (spec 4.1; contract, section 6).
package programmes

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// Path is the path of the collection, below the base address.
const Path = "/v1/programmes/programmes"

// Store stores programmes. Its errors are those of the domain, or *apierr.Error.
type Store interface {
	StandingAndPage(
		ctx context.Context, q standing.Query, query programme.Query,
	) (standing.Standing, programme.Page, error)
	Page(ctx context.Context, query programme.Query) (programme.Page, error)
	StandingAndProgramme(
		ctx context.Context, q standing.Query, workspaceID, id uuid.UUID,
	) (standing.Standing, *programme.Programme, error)
	Import(ctx context.Context, workspaceID, id uuid.UUID) (programme.Import, error)
	// Once runs effect in one transaction, or returns the answer already stored under key.
	Once(ctx context.Context, key rest.Key, effect rest.Effect[programme.Writer]) (rest.Answer, error)
}

// An Endpoint makes the handlers of the module.
type Endpoint struct {
	BaseURL string // without a trailing slash
	Gate    *gate.Gate
	Store   Store
	Cursors *rest.Cursors
}

// Routes returns the handlers of the module by path and method.
func (e *Endpoint) Routes() map[string]map[string]http.Handler {
	imports := newSlots(importsAtOnce, importsOfWorkspace, importWait) // bounds the imports received at once
	moves, upserts := decodeItems(readMoveItem, programme.Writer.Move), decodeItems(readUpsert, programme.Writer.Upsert)
	return map[string]map[string]http.Handler{
		Path: {
			"GET":  e.Gate.Guard(perm.ProgrammesRead, e.prepareList),
			"POST": e.write(gate.UpTo(maxJSON), e.decodeCreate),
		},
		Path + "/imports":      {"POST": e.write(imports.upTo(maxCSV), e.decodeImport)},
		Path + "/imports/{id}": {"GET": e.imports().One()},
		Path + "/{id}": {
			"GET":    e.Gate.Guard(perm.ProgrammesRead, e.prepareRead),
			"PATCH":  e.write(gate.UpTo(maxJSON), decodeChange),
			"DELETE": e.write(gate.UpTo(maxJSON), gate.Deletes(programme.ErrNotFound, programme.Writer.DeleteDraft)),
		},
		Path + "/{id}/transitions": {"POST": e.write(gate.UpTo(maxJSON), decodeMove)},
		Path + "/transitions":      {"POST": e.write(gate.UpTo(maxBatchBody), moves)},
		Path + "/batch":            {"POST": e.write(gate.UpTo(maxBatchBody), upserts)},
		// The external id is one segment, with each slash in it as %2F.
		Path + "/external/{externalId}": {"PUT": e.write(gate.UpTo(maxJSON), e.decodePut)},
	}
}

// prepareList handles GET: one page, newest first (spec 4.1). It reads the page in the round trip of the standing. A
// search runs only after the caller was admitted, since it may read every programme of the workspace.
func (e *Endpoint) prepareList(r *http.Request, workspaceID uuid.UUID) (gate.Plan, error) {
	if err := rest.UnknownParameters(r.URL.RawQuery, programme.Parameters()...); err != nil {
		return gate.Plan{}, err
	}
	query, err := programme.ReadQuery(r.URL.RawQuery, workspaceID, e.Cursors)
	if err != nil {
		return gate.Plan{}, refusals.Of(err)
	}
	query.Into = func() programme.Sink {
		return rest.NewPage(encodeRecord, query.Fields, gate.ByteReserver(r.Context()))
	}
	var page programme.Page
	plan := gate.Plan{Serve: func(w http.ResponseWriter, r *http.Request, _ gate.Caller) error {
		found, next := page.Sink.(*rest.Page[programme.Programme]), "" // by query.Into
		if page.More {
			last := found.Last()
			at := rest.Position{CreatedAt: last.CreatedAt, ID: last.ID, Until: page.Until}
			next = programme.SealCursor(e.Cursors, at, workspaceID, query.Filter)
		}
		found.Write(w, r, next)
		return nil
	}}
	if query.Filter.Search != "" {
		plan.Search = func(ctx context.Context, _ gate.Caller) (err error) {
			page, err = e.Store.Page(ctx, query)
			return refusals.Of(err)
		}
		return plan, nil
	}
	plan.ReadStanding = func(ctx context.Context, q standing.Query) (s standing.Standing, err error) {
		s, page, err = e.Store.StandingAndPage(ctx, q, query)
		return s, err
	}
	return plan, nil
}

func encodeRecord(b []byte, p programme.Programme) ([]byte, error) {
	return programme.AppendRecord(b, p), nil
}

// prepareRead handles GET of one programme, with the entity tag for If-Match. It reads the programme in the round trip
// of the standing.
func (e *Endpoint) prepareRead(r *http.Request, workspaceID uuid.UUID) (gate.Plan, error) {
	if err := rest.UnknownParameters(r.URL.RawQuery); err != nil {
		return gate.Plan{}, err
	}
	id, err := gate.PathID(r, programme.ErrNotFound)
	if err != nil {
		return gate.Plan{}, refusals.Of(err)
	}
	conditions, err := rest.ReadConditions(r.Header)
	if err != nil {
		return gate.Plan{}, err
	}
	var found *programme.Programme
	return gate.Plan{
		ReadStanding: func(ctx context.Context, q standing.Query) (s standing.Standing, err error) {
			s, found, err = e.Store.StandingAndProgramme(ctx, q, workspaceID, id)
			return s, err
		},
		Serve: func(w http.ResponseWriter, _ *http.Request, _ gate.Caller) error {
			if found == nil {
				return refusals.Of(programme.ErrNotFound)
			}
			serve := func() { rest.Answer{Status: http.StatusOK, Body: programme.AppendRecord(nil, *found)}.Serve(w) }
			return refusals.Of(conditions.ServeRead(w, found.Version, serve))
		},
	}, nil
}

// imports serves the results of imports: accepted, processed or rejected. They need the write permission only, since a
// caller who may write may see the result.
func (e *Endpoint) imports() gate.Records[programme.Import, programme.Import] {
	return gate.Records[programme.Import, programme.Import]{
		Module:   gate.Module{Gate: e.Gate, Refusals: refusals},
		Need:     perm.ProgrammesWrite,
		Record:   gate.Itself[programme.Import],
		NotFound: programme.ErrNotFound,
		Read:     e.Store.Import,
	}
}

var refusals = rest.Refusals{{Err: rest.ErrStale, As: apierr.New(apierr.PreconditionFailed,
	"The programme has changed since you read it. Read it again and repeat your change.")}}

// readMembers reads the members other than status. Omitted ones are nil; null removes a date or an external id.
func readMembers(o rest.Object, problems rest.Problems) programme.Change {
	return programme.Change{
		Name:       o.OptionalText(programme.FieldName, problems),
		Summary:    o.OptionalText(programme.FieldSummary, problems),
		StartsOn:   readDate(o, programme.FieldStartsOn, problems),
		EndsOn:     readDate(o, programme.FieldEndsOn, problems),
		ExternalID: readExternalID(o, problems),
	}
}

// readDetails reads the body of POST: name and, optionally, the other members. The default of status is draft.
func readDetails(o rest.Object) (programme.Details, error) {
	problems := rest.UnknownMembers(o, programme.WritableFields...)
	p, _ := readMembers(o, problems).Apply(programme.Programme{}) // Details.Check finds its problems
	details := p.Details
	details.Status = programme.Draft
	if status := o.OptionalText(programme.FieldStatus, problems); status != nil {
		details.Status = programme.Status(*status)
	}
	return details, problems.Join(details.Check())
}

// readChange reads the body of PATCH.
func readChange(o rest.Object) (programme.Change, error) {
	problems := rest.UnknownMembers(o, programme.WritableFields...)
	if o.Has(programme.FieldStatus) {
		problems[programme.FieldStatus] = "Change the status with a transition: POST to …/transitions."
	}
	change := readMembers(o, problems)
	return change, problems.Join(change.Check())
}

func readTo(o rest.Object, problems rest.Problems) programme.Status {
	text, isText := o.Text("to")
	status, known := programme.ParseStatus(text)
	if !isText || !known {
		problems["to"] = programme.StatusMessage
	}
	return status
}

// readExternalID returns nil if the member is missing, and "" for null, which means none.
func readExternalID(o rest.Object, problems rest.Problems) *string {
	if o.Null(programme.FieldExternalID) {
		return new(string)
	}
	id := o.OptionalText(programme.FieldExternalID, problems)
	if id != nil {
		if message := programme.CheckExternalID(*id); message != "" {
			problems[programme.FieldExternalID] = message
		}
	}
	return id
}

func readDate(o rest.Object, field string, problems rest.Problems) *programme.Date {
	if !o.Has(field) {
		return nil
	}
	if o.Null(field) {
		return new(programme.Date)
	}
	text, isText := o.Text(field)
	day, ok := programme.ParseDate(text)
	if !isText || !ok {
		problems[field] = programme.DateMessage
		return nil
	}
	return &day
}

// readUpsert reads the members of POST. For an existing programme they are a change: omitted ones stay unchanged.
func readUpsert(o rest.Object) (programme.Upsert, error) {
	details, err := readDetails(o)
	if err != nil {
		return programme.Upsert{}, err
	}
	change := readMembers(o, rest.Problems{}) // readDetails has found the problems
	change.ExternalID = nil                   // the programme is found by it
	wanted := programme.Upsert{New: details, Change: change}
	if o.Has(programme.FieldStatus) {
		wanted.Status = &details.Status
	}
	return wanted, nil
}
