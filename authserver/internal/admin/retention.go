package admin

import (
	"context"
	"fmt"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// ShowRetention lists how long records are kept, and how many are due.
func (d *Service) ShowRetention(ctx context.Context) (Result, error) { return d.Retention.Show(ctx) }

// RunRetention deletes the due records now and records their numbers in one audit event.
func (d *Service) RunRetention(ctx context.Context) (Result, error) {
	all, failed := d.Retention.DeleteAll(ctx)
	if counts := all.Counts(); len(counts) > 0 {
		e := audit.Event{
			Actor:   Actor,
			Action:  audit.RetentionRun,
			Subject: "retention",
			Detail:  map[string]any{"deleted": counts},
		}
		if err := d.Audit.Record(ctx, e); err != nil {
			return nil, fmt.Errorf("record the run: %w", err)
		}
	}
	return all, failed
}
