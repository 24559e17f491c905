package engage

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
)

// A Status is how far a submission is (E5).
type Status string

// The statuses.
const (
	Accepted  Status = "accepted"
	Processed Status = "processed"
	Rejected  Status = "rejected"
)

// Reasons for rejecting what was accepted, in words for the sender.
const (
	ReasonTrapped = "A field that people do not see was filled in, as programs do. If you are a person, please open " +
		"the form again and leave the field called Website empty."
	ReasonFailed = "We could not process this, and have given up after trying several times. Please send it again."
)

// A Submission is what somebody sent in.
type Submission struct {
	ID          uuid.UUID
	Form        uuid.UUID
	WorkspaceID uuid.UUID
	Token       uuid.UUID // the identity of its submission token
	Answers     Answers
	// the answers as they are stored; in a list, which only passes them on, instead of Answers
	Kept       json.RawMessage
	Consents   []ConsentGiven
	Trapped    bool // a field that people do not see was filled in
	Status     Status
	Reasons    []string
	Supporter  *uuid.UUID
	CreatedAt  time.Time
	FinishedAt *time.Time
}

// UpdatedAt is when it was accepted, or came to its end (E5).
func (s Submission) UpdatedAt() time.Time {
	if s.FinishedAt != nil {
		return *s.FinishedAt
	}
	return s.CreatedAt
}

// A SubmissionPage is what there is to say of one page of a form's submissions besides them.
type SubmissionPage struct {
	More bool // more may follow
	// Until is the newest time that could be read with the first page of a list with UpdatedSince; zero in other lists.
	// What changes later is left out of the pages that follow (E7).
	Until time.Time
}

// Writer writes within one transaction.
type Writer interface {
	// CreateForm adds a form whose definition was checked.
	CreateForm(ctx context.Context, f Form, by uuid.UUID) (Form, error)
	// ReplaceForm lets edit say what a form of the workspace is to become, while nobody else changes it. What the form
	// asks stays. An edit that changes nothing makes no new version. It returns ErrNotFound, or the error of edit.
	ReplaceForm(ctx context.Context, workspaceID, id uuid.UUID, edit func(Form) (Form, error)) (Form, error)
	// Accept keeps a submission together with the job that will process it. It returns ErrTokenUsed.
	Accept(ctx context.Context, s Submission) error
}

// A Supporter is somebody who wrote to a workspace, as far as one submission tells.
type Supporter struct {
	Email string // in lower case; "": none given
	Phone string // "": none given
	Name  string // "": none given
}

// SupporterOf finds the sender in the answers: the first e-mail address, the first phone number, and the text of the
// field called name.
func SupporterOf(fields []Field, answers Answers) Supporter {
	var s Supporter
	for _, field := range fields {
		text, _ := answers[field.Name].(string)
		switch {
		case field.Type == Email && s.Email == "":
			s.Email = strings.ToLower(text)
		case field.Type == Phone && s.Phone == "":
			s.Phone = text
		case field.Type == Text && strings.EqualFold(field.Name, "name"):
			s.Name = text
		}
	}
	return s
}
