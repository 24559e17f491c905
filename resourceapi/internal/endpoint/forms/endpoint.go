// Package forms serves the endpoints with which a workspace manages its public forms.
//
// It decodes requests, calls the domain and encodes the results; package gate decides who may call. All paths are
// under /v1/engage/forms (contract, section 6).
package forms

import (
	"bytes"
	"context"
	"encoding/csv"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/page/spreadsheet"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

// Paths of the collections, below the base address.
const (
	Path            = "/v1/engage/forms"
	SubmissionsPath = "/v1/engage/submissions"
	SupportersPath  = "/v1/engage/supporters"
	ErasuresPath    = "/v1/engage/erasures"
)

// Store stores forms. Its errors are those of the domain, or *apierr.Error.
type Store interface {
	Form(ctx context.Context, workspaceID, id uuid.UUID) (engage.Form, error)
	// Forms, Submissions and Supporters pass the records of a page to take until it returns false.
	Forms(ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(engage.Form) bool) (rest.End, error)
	Submissions(
		ctx context.Context, workspaceID, form uuid.UUID, r rest.Range, take func(engage.SubmissionRecord) bool,
	) (rest.End, error)
	Submission(ctx context.Context, workspaceID, id uuid.UUID) (engage.SubmissionRecord, error)
	Supporters(
		ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(engage.StoredSupporter) bool,
	) (rest.End, error)
	Supporter(ctx context.Context, workspaceID, id uuid.UUID) (engage.StoredSupporter, error)
	// Erasure reads an erasure that a worker does.
	Erasure(ctx context.Context, workspaceID, id uuid.UUID) (engage.Erasure, error)
	// Once runs effect in one transaction, or returns the answer already stored under key.
	Once(ctx context.Context, key rest.Key, effect rest.Effect[engage.Writer]) (rest.Answer, error)
}

// An Endpoint makes the handlers.
type Endpoint struct {
	BaseURL string // without a trailing slash
	Gate    *gate.Gate
	Store   Store
	Cursors *rest.Cursors
	// RecordExport records in the audit log that the user by exports the submissions of a form.
	RecordExport func(ctx context.Context, workspaceID, by, form uuid.UUID, format string) error
}

// Routes returns the handlers of the module by path and method.
func (e *Endpoint) Routes() map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{
		Path: {"GET": e.forms().List(), "POST": e.write(perm.EngageWriteForms, e.decodeCreate)},
		Path + "/{id}": {
			"GET":    e.forms().One(),
			"PATCH":  e.write(perm.EngageWriteForms, decodeChange),
			"DELETE": e.write(perm.EngageWriteForms, e.decodeDelete),
		},
		Path + "/{id}/submissions": {"GET": e.submissions().List()},

		Path + "/{id}/submissions/export": {"GET": e.export()},

		SubmissionsPath + "/{id}": {
			"GET": e.submissions().One(),
			"DELETE": e.write(perm.EngageWriteSubmissions,
				gate.Deletes(engage.ErrNoSubmission, engage.Writer.EraseSubmission)),
		},
		SupportersPath: {"GET": e.supporters().List()},
		SupportersPath + "/{id}": {
			"GET":    e.supporters().One(),
			"DELETE": e.write(perm.EngageWriteSubmissions, e.decodeDeleteSupporter),
		},
		SupportersPath + "/erase": {"POST": e.write(perm.EngageWriteSubmissions, e.decodeErase)},
		ErasuresPath + "/{id}":    {"GET": e.erasures().One()},
	}
}

func (e *Endpoint) module() gate.Module {
	return gate.Module{Gate: e.Gate, Cursors: e.Cursors, Refusals: refusals}
}

// forms serves the workspace's forms, each with the entity tag for If-Match.
func (e *Endpoint) forms() gate.Records[engage.Form, engage.Form] {
	return gate.Records[engage.Form, engage.Form]{
		Module: e.module(),
		Need:   perm.EngageReadForms,
		Record: gate.Itself[engage.Form],
		Name:   "forms",
		Page:   e.Store.Forms,
		Position: func(f engage.Form) rest.Position {
			return rest.Position{CreatedAt: time.Time(f.CreatedAt), ID: f.ID}
		},
		NotFound: engage.ErrNotFound,
		Read:     e.Store.Form,
		Version:  func(f engage.Form) int { return f.Version },
	}
}

// submissions serves the submissions of a form.
func (e *Endpoint) submissions() gate.Records[engage.SubmissionRecord, engage.SubmissionRecord] {
	return gate.Records[engage.SubmissionRecord, engage.SubmissionRecord]{
		Module: e.module(),
		Need:   perm.EngageReadSubmissions,
		Record: gate.Itself[engage.SubmissionRecord],
		Name:   "submissions",
		Owner:  engage.ErrNotFound,
		// The form belongs to the caller's workspace, so its submissions do too.
		Find: func(ctx context.Context, workspaceID, form uuid.UUID) error {
			_, err := e.Store.Form(ctx, workspaceID, form)
			return err
		},
		Filters: rest.Filters{Updated: true, Statuses: engage.Statuses(), Created: true},
		PageOf:  e.Store.Submissions,
		Position: func(s engage.SubmissionRecord) rest.Position {
			return rest.Position{CreatedAt: time.Time(s.CreatedAt), ID: s.ID}
		},
		NotFound: engage.ErrNoSubmission,
		Read:     e.Store.Submission,
	}
}

// supporters serves the workspace's supporters.
func (e *Endpoint) supporters() gate.Records[engage.StoredSupporter, engage.StoredSupporter] {
	return gate.Records[engage.StoredSupporter, engage.StoredSupporter]{
		Module: e.module(),
		Need:   perm.EngageReadSubmissions,
		Record: gate.Itself[engage.StoredSupporter],
		Name:   "supporters",
		Page:   e.Store.Supporters,
		Position: func(s engage.StoredSupporter) rest.Position {
			return rest.Position{CreatedAt: time.Time(s.CreatedAt), ID: s.ID}
		},
		NotFound: engage.ErrNoSupporter,
		Read:     e.Store.Supporter,
	}
}

// erasures serves the erasures that a worker does, each for callers who may erase such a record.
func (e *Endpoint) erasures() gate.Records[engage.Erasure, engage.Erasure] {
	return gate.Records[engage.Erasure, engage.Erasure]{
		Module:   e.module(),
		Need:     perm.EngageWriteSubmissions,
		Record:   gate.Itself[engage.Erasure],
		NotFound: engage.ErrNoErasure,
		Read:     e.Store.Erasure,
		Check: func(caller gate.Caller, erasure engage.Erasure) error {
			if erasure.Kind == engage.ErasedForm && !caller.Permissions.Has(perm.EngageWriteForms) {
				return apierr.New(apierr.Forbidden, "The erasure of a form requires the permission "+
					string(perm.EngageWriteForms)+" of the user and of the credential.")
			}
			return nil
		},
	}
}

var refusals = rest.Refusals{
	{Err: engage.ErrNotFound, As: apierr.New(apierr.NotFound, "There is no such form in this workspace.")},
	{Err: rest.ErrStale, As: apierr.New(apierr.PreconditionFailed,
		"The form has changed since you read it. Read it again and repeat your change.")},
}

const (
	// exportTime is the maximum duration of an export.
	exportTime = 10 * time.Minute
	// longPart is the number of bytes that an export buffers if the limit on buffered responses permits it.
	longPart = 1 << 20
	// shortPart is the number of bytes that it buffers otherwise.
	shortPart = 128 << 10
)

// exportFilters are the filters of an export.
var exportFilters = rest.Filters{Statuses: engage.Statuses(), Created: true}

// export handles GET of all submissions of one form, newest first, as CSV or JSON Lines. It streams them: it reads and
// writes one page before it reads the next one. Submissions that arrive during the export are not included. The audit
// log records each export. An export ends when its credential is revoked or expires.
func (e *Endpoint) export() http.Handler {
	return e.Gate.Guard(perm.EngageReadSubmissions, func(r *http.Request, _ uuid.UUID) (gate.Plan, error) {
		filter, err := rest.ReadFilter(r.URL.RawQuery, exportFilters, "format")
		if err != nil {
			return gate.Plan{}, refusals.Of(err)
		}
		format, err := readFormat(r.URL.RawQuery)
		if err != nil {
			return gate.Plan{}, err
		}
		return gate.Plan{Export: true, Serve: func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
			id, err := gate.PathID(r, engage.ErrNotFound)
			if err != nil {
				return refusals.Of(err)
			}
			form, err := e.Store.Form(r.Context(), caller.WorkspaceID, id)
			if err != nil {
				return refusals.Of(err)
			}
			if r.Method != http.MethodHead {
				err = e.RecordExport(r.Context(), caller.WorkspaceID, caller.User, form.ID, format.extension)
				if err != nil {
					return err
				}
			}
			return e.stream(w, r, caller, format, rest.Range{Limit: rest.MaxLimit, Filter: filter}, form)
		}}, nil
	})
}

// stream writes all submissions of the range. If the store fails or the credential ends after the response has begun,
// no status can report it. stream then aborts the connection, so that the client notices that the response is
// incomplete.
func (e *Endpoint) stream(
	w http.ResponseWriter, r *http.Request, caller gate.Caller, format exportFormat, wanted rest.Range,
	form engage.Form,
) error {
	most := shortPart
	if gate.ByteReserver(r.Context())(longPart) {
		most = longPart
	}
	part := format.header(form.Fields)
	web.AddRecords(r.Context(), 0)
	more, err := e.readPart(r.Context(), caller, form, &wanted, format, &part, most)
	if err != nil {
		return refusals.Of(err)
	}
	w.Header().Set("Content-Type", format.contentType)
	w.Header().Set("Content-Disposition",
		`attachment; filename="submissions-`+form.ID.String()+"."+format.extension+`"`)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return nil
	}
	// The error means that the writer has no deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(exportTime))
	for {
		if _, err := w.Write(part); err != nil || !more {
			return nil // a client that disconnected is not an error
		}
		part = part[:0]
		if err = caller.StillAdmitted(r.Context()); err == nil {
			more, err = e.readPart(r.Context(), caller, form, &wanted, format, &part, most)
		}
		if err != nil {
			if r.Context().Err() == nil && apierr.Of(err).Status() >= http.StatusInternalServerError {
				e.Gate.LogServerError(r, apierr.Of(err))
			}
			panic(http.ErrAbortHandler)
		}
	}
}

// readPart appends submissions to part until it has most bytes, and advances the range past them.
func (e *Endpoint) readPart(
	ctx context.Context, caller gate.Caller, form engage.Form, wanted *rest.Range, format exportFormat, part *[]byte,
	most int,
) (more bool, err error) {
	for more = true; more && len(*part) < most && err == nil; {
		var end rest.End
		failed := caller.ReadInTurn(ctx, func() (failed error) {
			after := wanted.After
			take := func(s engage.SubmissionRecord) bool {
				if len(*part) >= most {
					return false
				}
				*part, err = format.append(*part, form.Fields, s)
				after = &rest.Position{CreatedAt: time.Time(s.CreatedAt), ID: s.ID}
				web.AddRecords(ctx, 1)
				return err == nil
			}
			end, failed = e.Store.Submissions(ctx, form.WorkspaceID, form.ID, *wanted, take)
			wanted.After = after
			return failed
		})
		if failed != nil {
			return false, failed
		}
		more = end.More
	}
	return more, err
}

// An exportFormat is a format of an export.
type exportFormat struct {
	extension   string // also the value of the parameter format
	contentType string
	header      func(fields []engage.Field) []byte
	append      func(b []byte, fields []engage.Field, s engage.SubmissionRecord) ([]byte, error)
}

// exportFormats are the formats of an export: one submission per row (RFC 4180), with a column for each field of the
// form, or one per line, as in the list.
var exportFormats = []exportFormat{
	{"csv", "text/csv; charset=utf-8; header=present", csvHeader, appendCSV},
	{"jsonl", "application/jsonl; charset=utf-8", func([]engage.Field) []byte { return nil }, appendLine},
}

// readFormat returns the format that the parameter format selects.
func readFormat(raw string) (exportFormat, error) {
	p := rest.ReadParameters(raw, "format")
	text, _ := p.Text("format")
	at := slices.IndexFunc(exportFormats, func(f exportFormat) bool { return f.extension == text })
	if at < 0 && len(p.Problems) == 0 {
		p.Problems["format"] = "Must be csv or jsonl."
	}
	if err := p.Problems.OrNil(); err != nil {
		return exportFormat{}, refusals.Of(err)
	}
	return exportFormats[at], nil
}

func appendLine(b []byte, _ []engage.Field, s engage.SubmissionRecord) ([]byte, error) {
	content, err := web.EncodeJSON(s)
	return append(append(b, content...), '\n'), err
}

func csvHeader(fields []engage.Field) []byte {
	names := []string{"id", "status", "reasons", "supporterId", "createdAt", "updatedAt", "finishedAt"}
	for _, field := range fields {
		names = append(names, "answers."+field.Name)
	}
	b, _ := appendRow([]byte(spreadsheet.ByteOrderMark), names) // writing to memory cannot fail
	return b
}

func appendCSV(b []byte, fields []engage.Field, s engage.SubmissionRecord) ([]byte, error) {
	answers, err := engage.CellsOf(fields, s.Answers)
	if err != nil {
		return b, err
	}
	supporter, finished := "", ""
	if s.SupporterID != nil {
		supporter = s.SupporterID.String()
	}
	if s.FinishedAt != nil {
		finished = rest.FormatTime(time.Time(*s.FinishedAt))
	}
	return appendRow(b, append([]string{
		s.ID.String(),
		string(s.Status),
		spreadsheet.Cell(strings.Join(s.Reasons, " ")),
		supporter,
		rest.FormatTime(time.Time(s.CreatedAt)),
		rest.FormatTime(time.Time(s.UpdatedAt)),
		finished,
	}, answers...))
}

func appendRow(b []byte, cells []string) ([]byte, error) {
	out := bytes.NewBuffer(b)
	table := csv.NewWriter(out)
	table.UseCRLF = true
	err := table.Write(cells)
	table.Flush()
	return out.Bytes(), err
}
