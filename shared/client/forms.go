package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Forms is the workspace's side of Engage: its public forms, and what was sent in.
type Forms struct{ c *caller }

// A Form is a public form (contract, section 6).
type Form struct {
	ID             string    `json:"id"`
	EmbedKey       string    `json:"embedKey"` // public: it names the form on websites
	Title          string    `json:"title"`
	Fields         []Field   `json:"fields"`
	AllowedOrigins []string  `json:"allowedOrigins"`
	Enabled        bool      `json:"enabled"`
	CreatedAt      time.Time `json:"createdAt"`
	ETag           string    `json:"-"` // of this version, for IfMatch; "" in a list
}

// A Field is one question. Types are text, textarea, email, phone, number, date, select, multiselect and consent.
type Field struct {
	Name     string   `json:"name"`
	Label    string   `json:"label"`
	Type     string   `json:"type"`
	Required bool     `json:"required"`
	Options  []string `json:"options,omitempty"` // of select and multiselect alone
}

const formsPath = "/v1/engage/forms"

// A FormFilter narrows a list of forms. The zero value lets everything through.
type FormFilter struct {
	PageSize int // records fetched at a time, at most 200; 0: 50
}

// List goes through the forms, newest first. It takes one filter at most.
func (f Forms) List(ctx context.Context, filter ...FormFilter) iter.Seq2[Form, error] {
	query := url.Values{}
	for _, one := range filter {
		setPage(query, one.PageSize, time.Time{})
	}
	return list[Form](ctx, f.c, f.c.get(formsPath, query))
}

// Get reads one.
func (f Forms) Get(ctx context.Context, id string) (Form, error) {
	return f.one(ctx, f.c.get(f.path(id), nil))
}

// A NewForm is what to say of a new form.
type NewForm struct {
	Title  string  `json:"title"`
	Fields []Field `json:"fields"`
	// websites that may show it, as browsers send them: https://www.example.org
	AllowedOrigins []string `json:"allowedOrigins"`
}

// Create makes one.
func (f Forms) Create(ctx context.Context, n NewForm, options ...WriteOption) (Form, error) {
	if n.AllowedOrigins == nil {
		n.AllowedOrigins = []string{}
	}
	return f.send(ctx, http.MethodPost, formsPath, n, options)
}

// A FormChange says what is to be different. Nil leaves a field as it is. What a form asks does not change.
type FormChange struct {
	Title          *string   `json:"title,omitempty"`
	AllowedOrigins *[]string `json:"allowedOrigins,omitempty"`
	Enabled        *bool     `json:"enabled,omitempty"` // false closes the form
}

// Update changes one.
func (f Forms) Update(ctx context.Context, id string, change FormChange, options ...WriteOption) (Form, error) {
	return f.send(ctx, http.MethodPatch, f.path(id), change, options)
}

// A Submission is what somebody sent in.
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

// A Consented is the answer to one consent, with the version of the notice that was on screen.
type Consented struct {
	Field         string `json:"field"`
	NoticeVersion string `json:"noticeVersion"`
	Given         bool   `json:"given"`
}

// A SubmissionFilter narrows a list of submissions. The zero value lets everything through.
type SubmissionFilter struct {
	PageSize     int       // records fetched at a time, at most 200; 0: 50
	UpdatedSince time.Time // as in ProgrammeFilter
}

// Submissions goes through what was sent in to a form, newest first. It takes one filter at most.
func (f Forms) Submissions(ctx context.Context, form string, filter ...SubmissionFilter) iter.Seq2[Submission, error] {
	query := url.Values{}
	for _, one := range filter {
		setPage(query, one.PageSize, one.UpdatedSince)
	}
	return list[Submission](ctx, f.c, f.c.get(f.path(form)+"/submissions", query))
}

func (Forms) path(id string) string { return formsPath + "/" + url.PathEscape(id) }

func (f Forms) send(ctx context.Context, method, path string, value any, options []WriteOption) (Form, error) {
	r, err := f.c.writeJSON(method, path, value, options)
	if err != nil {
		return Form{}, err
	}
	return f.one(ctx, r)
}

func (f Forms) one(ctx context.Context, r request) (Form, error) {
	var out Form
	header, err := f.c.do(ctx, r, &out)
	if err != nil {
		return Form{}, err
	}
	out.ETag = header.Get("ETag")
	return out, nil
}
