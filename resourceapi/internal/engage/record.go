package engage

import (
	"encoding/json"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/jsontime"
)

// A SubmissionRecord is a submission as returned to its workspace.
type SubmissionRecord struct {
	ID          uuid.UUID       `json:"id"`
	Status      Status          `json:"status"`
	Reasons     []string        `json:"reasons"`
	Answers     json.RawMessage `json:"answers"`
	Consents    []ConsentAnswer `json:"consents"`
	SupporterID *uuid.UUID      `json:"supporterId"`
	CreatedAt   jsontime.Time   `json:"createdAt"`
	UpdatedAt   jsontime.Time   `json:"updatedAt"`
	FinishedAt  *jsontime.Time  `json:"finishedAt"`
}

// Record returns the submission as returned to its workspace.
func (s Submission) Record() SubmissionRecord {
	return SubmissionRecord{
		ID:          s.ID,
		Status:      s.Status,
		Reasons:     s.Reasons,
		Answers:     s.StoredAnswers,
		Consents:    s.Consents,
		SupporterID: s.Supporter,
		CreatedAt:   jsontime.Time(s.CreatedAt),
		UpdatedAt:   jsontime.Time(s.UpdatedAt()),
		FinishedAt:  jsontime.Pointer(s.FinishedAt),
	}
}

// A SupporterRecord is a supporter as returned to the workspace.
type SupporterRecord struct {
	ID        uuid.UUID     `json:"id"`
	Email     *string       `json:"email"`
	Phone     *string       `json:"phone"`
	Name      *string       `json:"name"`
	CreatedAt jsontime.Time `json:"createdAt"`
}

// Record returns the supporter as returned to the workspace.
func (s StoredSupporter) Record() SupporterRecord {
	return SupporterRecord{
		ID:        s.ID,
		Email:     orNull(s.Email),
		Phone:     orNull(s.Phone),
		Name:      orNull(s.Name),
		CreatedAt: jsontime.Time(s.CreatedAt),
	}
}

// orNull returns nil for an empty text.
func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
