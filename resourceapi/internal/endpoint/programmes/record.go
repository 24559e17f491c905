package programmes

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// A record is a programme as callers see it.
type record struct {
	ID        uuid.UUID        `json:"id"`
	Name      string           `json:"name"`
	Summary   string           `json:"summary"`
	Status    programme.Status `json:"status"`
	StartsOn  *string          `json:"startsOn"` // YYYY-MM-DD or null
	EndsOn    *string          `json:"endsOn"`
	CreatedAt time.Time        `json:"createdAt"` // RFC 3339, UTC, to the microsecond
	UpdatedAt time.Time        `json:"updatedAt"`
}

func recordOf(p programme.Programme) record {
	return record{
		ID: p.ID, Name: p.Name, Summary: p.Summary, Status: p.Status,
		StartsOn: dayOf(p.StartsOn), EndsOn: dayOf(p.EndsOn), CreatedAt: p.CreatedAt.UTC(), UpdatedAt: p.UpdatedAt.UTC(),
	}
}

func dayOf(d *programme.Date) *string {
	if d == nil {
		return nil
	}
	text := d.String()
	return &text
}

// entityTag names this version of the programme (RFC 9110, section 8.8.3).
func entityTag(p programme.Programme) string { return fmt.Sprintf(`"%d"`, p.Version) }
