package standing

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// EndReplaced ends every token that a personal access token replaces. Call it before responding to a valid
// credential whose standing has Replaces set: the replaced tokens end when the new one is first used, and not
// later.
func EndReplaced(ctx context.Context, db Execer, token uuid.UUID) error {
	if _, err := db.Exec(ctx, `select account.end_replaced($1)`, token); err != nil {
		return fmt.Errorf("end replaced tokens: %w", err)
	}
	return nil
}
