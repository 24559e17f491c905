package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Forms gives access to Engage in the workspace: its public forms and their submissions.
type Forms struct{ c *caller }

// A Form is a public form (contract, section 6).
type Form struct {
	ID             string    `json:"id"`
	EmbedKey       string    `json:"embedKey"` // public: identifies the form on websites
	Title          string    `json:"title"`
	Introduction   string    `json:"introduction"` // shown above the questions
	ThankYou       string    `json:"thankYou"`     // shown after sending; "" for the built-in text
	Lang           string    `json:"lang"`         // of the built-in texts, such as en or cy
	Fields         []Field   `json:"fields"`
	AllowedOrigins []string  `json:"allowedOrigins"`
	Enabled        bool      `json:"enabled"`
	CreatedAt      time.Time `json:"createdAt"`
	ETag           string    `json:"-"` // of this version, for IfMatch; "" in a list
	// RetentionMonths is the number of months after which each submission is deleted.
	RetentionMonths int `json:"retentionMonths"`
}

// A Field is one question of a form. Types are text, textarea, email, phone, number, date, select,
// multiselect and consent.
type Field struct {
	Name     string   `json:"name"`
	Label    string   `json:"label"`
	Type     string   `json:"type"`
	Required bool     `json:"required"`
	Options  []string `json:"options,omitempty"` // for select and multiselect only
	// AskIf is nil if the field is always asked. Otherwise it is shown, and may be required, only if it is asked.
	AskIf *Condition `json:"askIf,omitempty"`
}

// A Condition is met if the answer to an earlier field is Equals or, for a multiselect, contains it.
type Condition struct {
	Field  string `json:"field"`  // of type select, multiselect or consent
	Equals any    `json:"equals"` // one of its options; true for a consent
}

const formsPath = "/v1/engage/forms"

// A FormFilter narrows a list of forms. The zero value matches every form.
type FormFilter struct {
	PageSize int // records per page, up to 200; 0 means 50
}

// List returns the forms, newest first. It accepts up to one filter.
func (f Forms) List(ctx context.Context, filter ...FormFilter) iter.Seq2[Form, error] {
	query := url.Values{}
	for _, one := range filter {
		setPage(query, one.PageSize, time.Time{})
	}
	return list[Form](ctx, f.c, f.c.get(formsPath, query))
}

// Get returns one form.
func (f Forms) Get(ctx context.Context, id string) (Form, error) {
	return f.one(ctx, f.c.get(f.path(id), nil))
}

// A NewForm describes a form to create.
type NewForm struct {
	Title        string  `json:"title"`
	Introduction string  `json:"introduction,omitempty"` // plain text, with line breaks
	ThankYou     string  `json:"thankYou,omitempty"`     // plain text, with line breaks
	Lang         string  `json:"lang,omitempty"`         // "" for en
	Fields       []Field `json:"fields"`
	// AllowedOrigins are the websites that may show the form, as browsers send them: https://www.example.org
	AllowedOrigins []string `json:"allowedOrigins"`
	// RetentionMonths is the number of months after which each submission is deleted, 1 to 120; 0 means 24
	RetentionMonths int `json:"retentionMonths,omitempty"`
}

// Create creates a form.
func (f Forms) Create(ctx context.Context, n NewForm, options ...WriteOption) (Form, error) {
	if n.AllowedOrigins == nil {
		n.AllowedOrigins = []string{}
	}
	return f.one(ctx, f.c.writeJSON(http.MethodPost, formsPath, n, options))
}

// A FormChange describes changes of a form. A nil field stays unchanged. The questions of a form cannot
// change.
type FormChange struct {
	Title          *string   `json:"title,omitempty"`
	Introduction   *string   `json:"introduction,omitempty"`
	ThankYou       *string   `json:"thankYou,omitempty"`
	Lang           *string   `json:"lang,omitempty"`
	AllowedOrigins *[]string `json:"allowedOrigins,omitempty"`
	Enabled        *bool     `json:"enabled,omitempty"` // false closes the form
	// RetentionMonths applies to earlier submissions too
	RetentionMonths *int `json:"retentionMonths,omitempty"`
}

// Update changes a form.
func (f Forms) Update(ctx context.Context, id string, change FormChange, options ...WriteOption) (Form, error) {
	return f.one(ctx, f.c.writeJSON(http.MethodPatch, f.path(id), change, options))
}

// A Submission is one set of answers to a form.
type Submission struct {
	ID          string         `json:"id"`
	Status      string         `json:"status"`  // accepted, processed or rejected
	Reasons     []string       `json:"reasons"` // why it was rejected
	Answers     map[string]any `json:"answers"` // by field: a string, a json.Number, a bool or a list of strings
	Consents    []Consented    `json:"consents"`
	SupporterID string         `json:"supporterId"` // "" until it is processed
	CreatedAt   time.Time      `json:"createdAt"`
	UpdatedAt   time.Time      `json:"updatedAt"` // when it was sent in, or processed or rejected
	FinishedAt  *time.Time     `json:"finishedAt"`
}

// A Consented is the answer to one consent question, with the version of the notice that was shown.
type Consented struct {
	Field         string `json:"field"`
	NoticeVersion string `json:"noticeVersion"`
	Given         bool   `json:"given"`
}

// A SubmissionFilter narrows a list of submissions. The zero value matches every submission.
type SubmissionFilter struct {
	PageSize      int       // records per page, up to 200; 0 means 50
	UpdatedSince  time.Time // as in ProgrammeFilter
	Status        string    // accepted, processed or rejected; "" means all
	CreatedSince  time.Time // created at this time or later; the zero time means all
	CreatedBefore time.Time
}

// Submissions returns the submissions of a form, newest first. It accepts up to one filter.
func (f Forms) Submissions(ctx context.Context, form string, filter ...SubmissionFilter) iter.Seq2[Submission, error] {
	var chosen SubmissionFilter
	for _, one := range filter {
		chosen = one
	}
	return list[Submission](ctx, f.c, f.submissions(form, chosen))
}

// SubmissionsPage returns one page of Submissions, at a cursor or the first one if cursor is "". A program that stops
// between pages must store Next and continue with the same filter.
func (f Forms) SubmissionsPage(
	ctx context.Context, form string, filter SubmissionFilter, cursor string,
) (Page[Submission], error) {
	return pageOf[Submission](ctx, f.c, f.submissions(form, filter), cursor)
}

func (f Forms) submissions(form string, one SubmissionFilter) request {
	query := url.Values{}
	setPage(query, one.PageSize, one.UpdatedSince)
	if one.Status != "" {
		query.Set("status", one.Status)
	}
	setTime(query, "createdSince", one.CreatedSince)
	setTime(query, "createdBefore", one.CreatedBefore)
	return f.c.get(f.path(form)+"/submissions", query)
}

// An ExportFormat is the format of an export.
type ExportFormat string

// The formats: CSV with a column for each field, which begins with a byte order mark, and JSON Lines with one object
// per submission.
const (
	CSV       ExportFormat = "csv"
	JSONLines ExportFormat = "jsonl"
)

// Export returns all submissions of a form that the filter matches, newest first. The filter's PageSize and
// UpdatedSince must be zero. The caller reads the result to its end and closes it. If the export is aborted, for
// example because the credential was revoked, reading fails and the content read so far is incomplete.
func (f Forms) Export(
	ctx context.Context, form string, format ExportFormat, filter SubmissionFilter,
) (io.ReadCloser, error) {
	r := f.submissions(form, filter)
	r.path += "/export"
	r.query.Set("format", string(format))
	return f.c.stream(ctx, r)
}

func (Forms) path(id string) string { return formsPath + "/" + url.PathEscape(id) }

func (f Forms) one(ctx context.Context, r request) (Form, error) {
	var out Form
	header, err := f.c.do(ctx, r, &out)
	if err != nil {
		return Form{}, err
	}
	out.ETag = header.Get("ETag")
	return out, nil
}

const (
	erasuresPath   = "/v1/engage/erasures"
	supportersPath = "/v1/engage/supporters"
)

// The statuses of an erasure. One of up to 1,000 submissions is processed at once.
const (
	ErasureAccepted  = "accepted"
	ErasureProcessed = "processed"
)

// An Erasure is the result of erasing a form or a supporter with their submissions (contract, section 6a). From the
// moment it is accepted, none of them can be read.
type Erasure struct {
	ID                 string `json:"id"` // "" if the erasure was processed at once
	Status             string `json:"status"`
	DeletedSubmissions int    `json:"deletedSubmissions"` // so far
}

// Erase deletes a form and its submissions. If there are more than 1,000, the erasure is only accepted: call
// WaitForErasure to wait until it is processed.
func (f Forms) Erase(ctx context.Context, form string, options ...WriteOption) (Erasure, error) {
	return f.erase(ctx, deletion(f.path(form)), options)
}

// EraseSupporter deletes a supporter and all that they sent, as Erase does.
func (f Forms) EraseSupporter(ctx context.Context, id string, options ...WriteOption) (Erasure, error) {
	return f.erase(ctx, deletion(supportersPath+"/"+url.PathEscape(id)), options)
}

// EraseAddress deletes all that was sent with an e-mail address, as Erase does. An unknown address is no error.
func (f Forms) EraseAddress(ctx context.Context, email string, options ...WriteOption) (Erasure, error) {
	r := jsonRequest(http.MethodPost, supportersPath+"/erase", map[string]string{"email": email})
	return f.erase(ctx, r, options)
}

func deletion(path string) request {
	return request{method: http.MethodDelete, path: path, header: http.Header{"Content-Type": {jsonType}}}
}

func (f Forms) erase(ctx context.Context, r request, options []WriteOption) (Erasure, error) {
	e := Erasure{Status: ErasureProcessed} // the response to an erasure that was processed at once has no status
	if _, err := f.c.do(ctx, f.c.write(r, options), &e); err != nil {
		return Erasure{}, err
	}
	return e, nil
}

// ReadErasure returns the current state of an accepted erasure, for 30 days after its end.
func (f Forms) ReadErasure(ctx context.Context, id string) (Erasure, error) {
	return fetch[Erasure](ctx, f.c, f.c.get(erasuresPath+"/"+url.PathEscape(id), nil))
}

// WaitForErasure polls an accepted erasure until it is processed, or until ctx ends.
func (f Forms) WaitForErasure(ctx context.Context, id string) (Erasure, error) {
	return poll(ctx, "erasure "+id, func() (Erasure, bool, error) {
		e, err := f.ReadErasure(ctx, id)
		return e, e.Status != ErasureAccepted, err
	})
}
